//! A registered function that reads a file of changes.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde_json::{Value, json};
use tempfile::TempDir;
use vitrina_runner::RunnerSettings;
use vitrina_testbed::Fault;

use super::{Feed, FeedAbilities};
use crate::functions::Functions;
use crate::stage::Stage;

pub(crate) struct Function {
    functions: Functions,
    folder: TempDir,
}

/// Films by what is said of each of them last.
const CODE: &str = r#"
import json
from typing import Any, Iterator
from vitrina import Context, source

@source(output={"id": "int", "title": "text"})
def films(context: Context, position) -> Iterator[tuple[list[dict], Any]]:
    changes = json.load(open(FILE))
    last = {film: place for place, (film, title) in enumerate(changes)}
    start = position or 0
    while start < len(changes):
        end = min(start + context.batch_size, len(changes))
        rows = [{"id": film, "title": title} for place, (film, title) in enumerate(changes)
                if start <= place < end and last[film] == place and title is not None]
        yield rows, end
        start = end
"#;

impl Function {
    fn changes(&self) -> Vec<(i32, Option<String>)> {
        serde_json::from_slice(&std::fs::read(self.folder.path().join("changes")).unwrap()).unwrap()
    }

    fn add(&self, changes: impl IntoIterator<Item = (i32, Option<String>)>) {
        let all: Vec<_> = self.changes().into_iter().chain(changes).collect();
        std::fs::write(self.folder.path().join("changes"), json!(all).to_string()).unwrap();
    }
}

#[async_trait(?Send)]
impl Feed for Function {
    const ABILITIES: FeedAbilities = FeedAbilities {
        sees_deletes: Err("a function yields rows, and no keys of rows that are gone"),
        has_transactions: Err("whatever the function yields is committed"),
        has_table: Err("the function declares its columns"),
        has_requests: Err("the function may have connections of its own, which the runner knows nothing of"),
        every: 1,
    };

    async fn create(_: &Stage) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("changes"), "[]").unwrap();
        let file = json!(folder.path().join("changes"));
        Self { functions: Functions::of(&format!("FILE = {file}\n{CODE}")).await, folder }
    }

    fn config(&self) -> Value {
        json!({"type": "PYTHON", "source_type": "python", "python_task": "films", "source_query": null})
    }

    fn connect(&self, settings: &mut RunnerSettings) {
        settings.python = Some(std::sync::Arc::clone(&self.functions.python));
    }

    async fn put(&self, _: &Stage, ids: &[i32], title: &str) {
        self.add(ids.iter().map(|id| (*id, Some(title.to_owned()))));
    }

    async fn delete(&self, _: &Stage, id: i32) {
        self.add([(id, None)]);
    }

    async fn titles(&self, _: &Stage) -> BTreeMap<String, String> {
        let last: BTreeMap<i32, Option<String>> = self.changes().into_iter().collect();
        last.into_iter().filter_map(|(id, title)| Some((id.to_string(), title?))).collect()
    }

    fn play_at(&self, _: usize, _: Fault) {}

    fn requests(&self) -> usize {
        0
    }
}
