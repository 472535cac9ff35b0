"""An hourly DAG that brings the cinema's marts up to date. Tried with Airflow 2.11 and Airflow 3.3."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import Any, Dict

try:
    from airflow.sdk import BaseHook, Param, dag, get_current_context, task
except ImportError:  # Airflow 2
    from airflow.decorators import dag, task
    from airflow.hooks.base import BaseHook
    from airflow.models.param import Param
    from airflow.operators.python import get_current_context
try:
    from airflow.sdk.exceptions import AirflowException, AirflowFailException
except ImportError:
    from airflow.exceptions import AirflowException, AirflowFailException

from vitrina_airflow import RunEnded, Vitrina, VitrinaError, idempotency_key

CONNECTION = "vitrina"


def client() -> Vitrina:
    """From VITRINA_API_URL and VITRINA_API_TOKEN, else from the connection `vitrina`: the token is its password."""
    if "VITRINA_API_URL" in os.environ:
        return Vitrina(os.environ["VITRINA_API_URL"], os.environ["VITRINA_API_TOKEN"])
    connection = BaseHook.get_connection(CONNECTION)
    port = f":{connection.port}" if connection.port else ""
    return Vitrina(f"{connection.schema or 'https'}://{connection.host}{port}", connection.password or "")


def key_of_this_task() -> str:
    """The same for every try of a task in one DAG run: tries of it share one run of the pipeline."""
    task_instance = get_current_context()["ti"]
    parts = (task_instance.dag_id, task_instance.run_id, task_instance.task_id, task_instance.map_index)
    return idempotency_key("airflow", *parts)


# Tries are for what is outside the pipeline: a worker that died, an API that was away for very long.
@task(retries=3, retry_delay=timedelta(minutes=1))
def run_pipeline(pipeline: str) -> Dict[str, Any]:
    params = get_current_context()["params"]
    try:
        run = client().run_to_end(
            pipeline, key_of_this_task(), on_paused=params["on_paused"], again=params["again"]
        )
    except RunEnded as error:
        # Without `again` another try would only find the same run.
        raise (AirflowException if params["again"] else AirflowFailException)(str(error)) from error
    except VitrinaError as error:
        raise AirflowException(str(error)) from error
    return {name: run[name] for name in ("id", "rows_read", "rows_written", "rows_deleted", "rows_rejected")}


@dag(
    schedule="@hourly",
    start_date=datetime(2024, 1, 1),
    catchup=False,
    max_active_runs=1,
    tags=["vitrina"],
    params={
        "on_paused": Param("fail", enum=["fail", "wait"], description="what a PAUSED run does to its task"),
        "again": Param(False, type="boolean", description="whether a further try of a FAILED run runs it anew"),
    },
)
def vitrina_marts() -> None:
    films = run_pipeline.override(task_id="film_dim")("film_dim_full")
    ratings = run_pipeline.override(task_id="film_rating_agg")("film_rating_agg_full")
    films >> ratings


vitrina_marts()
