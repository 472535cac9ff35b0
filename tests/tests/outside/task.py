"""What a task of an orchestrator does, as a process: arguments and the end are JSON, what is said on the way is not."""

import json
import logging
import os
import sys

sys.path.insert(0, sys.argv[1])
import vitrina_airflow  # noqa: E402

logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
arguments = json.loads(sys.argv[2])
client = vitrina_airflow.Vitrina(os.environ["VITRINA_API_URL"], os.environ["VITRINA_API_TOKEN"])
try:
    end = {"end": "SUCCESS", "run": client.run_to_end(**arguments)}
except vitrina_airflow.VitrinaError as error:
    end = {"end": type(error).__name__, "message": str(error), "run": getattr(error, "run", None)}
print(json.dumps(end))
