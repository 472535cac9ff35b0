//! A pipeline: what to read, where to write it, and how. Configuration, never code (R-SET-3).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::{
    AllowedTargets, DocumentRules, OnChange, Schedule, Shared, Target, TargetName, TargetPart, TaskKind,
    TaskPlan, is_allowed_target, words::words,
};

macro_rules! id {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! { PipelineId }
id! {
    /// One request's execution.
    RunId
}

words! {
    PipelineKind, "type" { Sql = "SQL", Python = "PYTHON" }
}
words! {
    Mode, "mode" {
        /// Reads the whole source; the mart equals it afterwards.
        Full = "full",
        /// Reads what is new or changed since the checkpoint.
        Incremental = "incremental",
    }
}
words! {
    /// How an incremental pipeline learns which keys are dirty.
    Capture, "capture" { Cursor = "cursor", Changelog = "changelog" }
}

words! {
    /// How the source of a load is read.
    ReadBy, "read" {
        /// By pages where an index serves the order of the key, else in one stream.
        Auto = "auto",
        /// One short query a batch.
        Keyset = "keyset",
        /// One query a run, cut into batches.
        Stream = "stream",
    }
}
words! {
    /// How a mart that is empty gets its first rows.
    FirstLoad, "first_load" {
        /// Straight by COPY: half the time, and readers see it grow.
        Direct = "direct",
        /// Through staging, like every later load: readers see all or nothing.
        Staged = "staged",
    }
}

/// The rows that `batch_size` may ask for.
pub const BATCH_SIZES: std::ops::RangeInclusive<i32> = 1..=100_000;

/// Lists of pipelines carry descriptions and tags: characters of a description, tags, and characters of one.
pub const LONGEST_DESCRIPTION: usize = 10_000;
pub const MOST_TAGS: usize = 50;
pub const LONGEST_TAG: usize = 100;

/// Whether a pipeline may have this tag, and a token be for it.
pub fn is_tag(text: &str) -> bool {
    let is_plain = |c: char| c != ',' && !c.is_control();
    (1..=LONGEST_TAG).contains(&text.chars().count()) && text.trim() == text && text.chars().all(is_plain)
}

/// What [`is_tag`] asks for, in words.
pub fn tag_rule() -> String {
    format!("a tag has 1 to {LONGEST_TAG} characters, no comma, no control character and no space around it")
}

/// Ten years: beyond that a source cannot count back from its clock.
const LATE_WINDOWS: std::ops::RangeInclusive<i64> = 0..=315_360_000;

/// The configuration of a pipeline. A run works on a snapshot of it (R-EX-11).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pipeline {
    pub id: PipelineId,
    pub name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub tags: Vec<String>,
    #[serde(rename = "type")]
    pub kind: PipelineKind,
    pub source_type: String,
    pub source_connection: String,
    pub source_table: Option<String>,
    pub source_query: Option<String>,
    pub target_table: String,
    /// What its rows have in the column by which pipelines share its target, where they share it by rows.
    #[serde(default)]
    pub shared_value: Option<String>,
    pub mode: Mode,
    pub batch_size: i32,
    pub enabled: bool,
    pub schedule_interval: Option<String>,
    /// When it is loaded in full, whatever its own mode: written as `schedule_interval` is.
    #[serde(default)]
    pub full_schedule: Option<String>,
    pub incremental_key: Option<String>,
    pub incremental_id_key: Option<String>,
    pub capture: Capture,
    /// The columns of the mart by which changes are named; empty means the target's key.
    #[serde(default)]
    pub change_key: Vec<String>,
    /// Further tables whose changes make rows of the mart dirty.
    #[serde(default)]
    pub watch: Vec<Watch>,
    pub late_window_seconds: i64,
    pub delete_limit: f64,
    #[serde(default)]
    pub reject_limit: i64,
    /// How far the target may lag behind its source before somebody should look.
    #[serde(default)]
    pub freshness_limit_seconds: Option<i64>,
    /// When the target is compared with its source, as `schedule_interval` says when it is run.
    #[serde(default)]
    pub reconcile_schedule: Option<String>,
    #[serde(default = "auto")]
    pub read: ReadBy,
    #[serde(default = "direct")]
    pub first_load: FirstLoad,
    /// What becomes of a checkpoint whose configuration has changed.
    #[serde(default = "ask")]
    pub on_change: OnChange,
    pub python_task: Option<String>,
    #[serde(default)]
    pub plan: TaskPlan,
}

fn ask() -> OnChange {
    OnChange::Ask
}

fn auto() -> ReadBy {
    ReadBy::Auto
}

fn direct() -> FirstLoad {
    FirstLoad::Direct
}

/// A table that the mart's rows depend on, beside the one they stand for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    pub table: String,
    /// Its columns that name what is dirty: in the order of the change key, or what `keys` is asked with.
    pub key: Vec<String>,
    /// A query that answers the change keys of the values in `$1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<String>,
    /// The column that tells when a row has changed; by default the pipeline's own `incremental_key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incremental_key: Option<String>,
}

/// One broken rule. All of them are reported at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    pub code: &'static str,
    /// The field it is about, as the API and the database call it.
    pub field: String,
    pub message: String,
}

impl Violation {
    pub fn new(code: &'static str, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code, field: field.into(), message: message.into() }
    }
}

impl Pipeline {
    /// The columns whose rows are recomputed together: the target's key, unless others are named.
    pub fn change_key_or<'a>(&'a self, key: &'a [String]) -> &'a [String] {
        if self.change_key.is_empty() { key } else { &self.change_key }
    }

    /// Where the rows go: the last task's own target, else the pipeline's (R-CFG-3).
    pub fn effective_target(&self) -> &str {
        self.plan.target_override().unwrap_or(&self.target_table)
    }

    /// The SQL to read with: the plan's reader (its table, where it has no body), else `source_query`, else all of `source_table` (R-CFG-2).
    pub fn reader_sql(&self) -> Option<String> {
        let (query, table) = match self.plan.reader() {
            Some(reader) => {
                (Some(reader.body.as_str()).filter(|body| !body.trim().is_empty()), &reader.source_table)
            }
            None => (filled(&self.source_query), &self.source_table),
        };
        let whole = || filled(table).map(|table| format!("select * from {table}"));
        query.map(str::to_owned).or_else(whole)
    }

    /// The table that the rows of a query stand for, where the pipeline names it beside the query.
    pub fn driving_table(&self) -> Option<&str> {
        match self.plan.reader() {
            Some(reader) => filled(&reader.source_table).filter(|_| !reader.body.trim().is_empty()),
            None => filled(&self.source_query).and(filled(&self.source_table)),
        }
    }

    /// Names of the registered Python functions a runner needs for this pipeline.
    pub fn python_tasks(&self) -> Vec<&str> {
        self.plan
            .transforms()
            .filter(|task| task.kind() == Some(TaskKind::Python))
            .map(|task| task.body.as_str())
            .chain(filled(&self.python_task))
            .collect()
    }

    /// The registered function that is its source, where it reads from one.
    pub fn python_source(&self) -> Option<&str> {
        filled(&self.python_task).filter(|_| self.source_type == "python")
    }

    /// The registered functions that its rows go through, in order.
    pub fn transforms(&self) -> Vec<&str> {
        let source = self.python_source();
        let mut tasks = self.python_tasks();
        if source.is_some() {
            tasks.pop();
        }
        tasks
    }

    /// Everything that can be said against this configuration without asking a database.
    pub fn violations(&self, allowed: &AllowedTargets) -> Vec<Violation> {
        let mut found = self.plan.violations(allowed);
        found.extend(self.name_violation());
        found.extend(self.source_violation());
        found.extend(self.python_violations());
        found.extend(self.target_violation(allowed));
        found.extend(self.number_violations());
        found.extend(self.watch_violations());
        found.extend(self.incremental_violations());
        found.extend(self.schedule_violations());
        found
    }

    fn name_violation(&self) -> Option<Violation> {
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        let usable = (1..=100).contains(&self.name.chars().count())
            && self.name.chars().all(plain)
            // In a path of the API they are no names.
            && !matches!(self.name.as_str(), "." | "..")
            && Uuid::parse_str(&self.name).is_err();
        (!usable).then(|| {
            let rule = "a name has 1 to 100 letters, digits, '_', '-' or '.', and is not a uuid, '.' or '..'";
            Violation::new("pipeline.name", "name", rule)
        })
    }

    fn source_violation(&self) -> Option<Violation> {
        match self.kind {
            // What is wrong with a plan says the plan.
            PipelineKind::Sql if self.plan.tasks.is_empty() && self.reader_sql().is_none() => {
                Some(Violation::new(
                    "pipeline.source",
                    "source_query",
                    "nothing to read: give source_query, source_table or a task plan",
                ))
            }
            PipelineKind::Python if filled(&self.python_task).is_none() && self.plan.tasks.is_empty() => {
                Some(Violation::new("pipeline.python_task", "python_task", "type PYTHON needs python_task"))
            }
            _ => None,
        }
    }

    /// One way to name functions, and one reader: whichever of two were meant, the other would be left out or run as well.
    fn python_violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut say = |field: &str, message: &str| {
            found.push(Violation::new("pipeline.python", field, message));
        };
        let (named, planned) = (filled(&self.python_task).is_some(), !self.plan.tasks.is_empty());
        if named && planned {
            say(
                "python_task",
                "beside a task plan there is no python_task: make it a step of the plan, or leave it out",
            );
        } else if named && self.kind == PipelineKind::Sql {
            say("python_task", "python_task is for type PYTHON: change the type, or leave it out");
        }
        if self.source_type == "python" && planned {
            say(
                "source_type",
                "a task plan reads with SQL: source_type python has python_task instead, or leave it out",
            );
        } else if self.source_type == "python" && self.kind == PipelineKind::Sql {
            say(
                "source_type",
                "source_type python is for type PYTHON, with python_task, the name of a source",
            );
        }
        found
    }

    fn target_violation(&self, allowed: &AllowedTargets) -> Option<Violation> {
        match is_allowed_target(&self.target_table, allowed) {
            Ok(_) => None,
            Err(error) => Some(Violation::new(error.code, "target_table", error.to_string())),
        }
    }

    /// Texts that are too long to be saved. Runs do not ask: what was saved before these limits is run as it is.
    pub fn size_violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let length = self.description.chars().count();
        if length > LONGEST_DESCRIPTION {
            let rule = format!("description has {length} characters: at most {LONGEST_DESCRIPTION}");
            found.push(Violation::new("pipeline.description", "description", rule));
        }
        if self.tags.len() > MOST_TAGS {
            let rule = format!("there are {} tags: at most {MOST_TAGS}", self.tags.len());
            found.push(Violation::new("pipeline.tags", "tags", rule));
        }
        if let Some(tag) = self.tags.iter().find(|tag| !is_tag(tag)) {
            found.push(Violation::new("pipeline.tags", "tags", format!("{tag:?} is no tag: {}", tag_rule())));
        }
        found
    }

    /// Numbers out of their range: wrong in a draft too, whatever it still lacks.
    pub fn number_violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        if !BATCH_SIZES.contains(&self.batch_size) {
            let rule = format!(
                "batch_size is {}: from {} to {}",
                self.batch_size,
                BATCH_SIZES.start(),
                BATCH_SIZES.end()
            );
            found.push(Violation::new("pipeline.batch_size", "batch_size", rule));
        }
        if !(0.0..=1.0).contains(&self.delete_limit) {
            let rule = format!("delete_limit is {}: a share of the mart from 0 to 1", self.delete_limit);
            found.push(Violation::new("pipeline.delete_limit", "delete_limit", rule));
        }
        if self.reject_limit < 0 {
            let rule = format!("reject_limit is {}: a number of rows, 0 or more", self.reject_limit);
            found.push(Violation::new("pipeline.reject_limit", "reject_limit", rule));
        }
        if self.freshness_limit_seconds.is_some_and(|limit| limit <= 0) {
            let rule = "freshness_limit_seconds is a number of seconds, 1 or more";
            found.push(Violation::new("pipeline.freshness_limit", "freshness_limit_seconds", rule));
        }
        if !LATE_WINDOWS.contains(&self.late_window_seconds) {
            let rule = format!(
                "late_window_seconds is {}: from 0 to {}",
                self.late_window_seconds,
                LATE_WINDOWS.end()
            );
            found.push(Violation::new("pipeline.late_window", "late_window_seconds", rule));
        }
        found
    }

    fn schedule_violations(&self) -> Vec<Violation> {
        let schedules = [
            ("pipeline.schedule", "schedule_interval", &self.schedule_interval),
            ("pipeline.full_schedule", "full_schedule", &self.full_schedule),
            ("pipeline.reconcile_schedule", "reconcile_schedule", &self.reconcile_schedule),
        ];
        let violation = |(code, field, schedule): (&'static str, &str, &Option<String>)| {
            let error = schedule.as_deref()?.parse::<Schedule>().err()?;
            Some(Violation::new(code, field, error.to_string()))
        };
        schedules.into_iter().filter_map(violation).collect()
    }

    fn watch_violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for (place, watch) in self.watch.iter().enumerate() {
            let mut say = |field: &str, message: &str| {
                found.push(Violation::new("pipeline.watch", format!("watch[{place}].{field}"), message));
            };
            if watch.table.trim().is_empty() {
                say("table", "a watched table has a name: schema.table");
            }
            if watch.key.is_empty() {
                say("key", "name the columns of the watched table that tell what is dirty");
            }
            if watch.keys.is_some() && watch.key.len() > 1 {
                say("key", "a query for keys is asked with the values of one column");
            }
            if self.watch[..place].iter().any(|other| other.table == watch.table) {
                say("table", "a table is watched once");
            }
        }
        found
    }

    fn incremental_violations(&self) -> Option<Violation> {
        let lacks_key = self.mode == Mode::Incremental
            && self.capture == Capture::Cursor
            && self.python_source().is_none()
            && filled(&self.incremental_key).is_none();
        lacks_key.then(|| {
            Violation::new(
                "pipeline.incremental_key",
                "incremental_key",
                "mode incremental needs incremental_key",
            )
        })
    }

    /// What of this target it writes.
    pub fn part_of(&self, target: &Target) -> TargetPart {
        let by_rows = matches!(target.shared, Some(Shared::Rows { .. }));
        let shared_value = self.shared_value.clone().filter(|_| by_rows);
        TargetPart { target: self.effective_target().to_owned(), shared_value }
    }

    /// What is wrong with `shared_value`, as this target is shared or not.
    pub fn shared_violation(&self, target: &Target) -> Option<Violation> {
        let name = &target.name;
        let rule = match (&target.shared, filled(&self.shared_value)) {
            (Some(Shared::Rows { column }), None) => format!(
                "{name} is shared by rows: name the value that this pipeline's rows have in column {column}"
            ),
            (Some(Shared::Columns), Some(_)) => {
                format!("{name} is shared by columns: only a mart that is shared by rows has shared_value")
            }
            (None, Some(_)) => format!(
                "{name} is not shared: leave shared_value out, or give the target shared: {{by: rows, column: …}}"
            ),
            _ => return None,
        };
        Some(Violation::new("pipeline.shared_value", "shared_value", rule))
    }

    /// Hash of all that decides what a position means. What only sets the pace is left out. `target` as it
    /// is declared, so that whoever knows the meta-store can tell.
    pub fn config_hash(&self, target: &Target) -> String {
        let mut meaning = serde_json::json!({
            "type": self.kind, "source_type": self.source_type, "source_connection": self.source_connection,
            "source": self.reader_sql(), "source_table": self.source_table, "python": self.python_tasks(),
            "reader_table": self.plan.reader().and_then(|task| task.source_table.as_deref()),
            "target": self.effective_target(), "target_connection": target.connection, "key": target.key,
            "incremental_key": self.incremental_key, "incremental_id_key": self.incremental_id_key,
            "capture": self.capture,
        });
        if !self.change_key.is_empty() || !self.watch.is_empty() {
            meaning["change_key"] = serde_json::json!(self.change_key);
            meaning["watch"] = serde_json::json!(self.watch);
        }
        // Documents of another shape do not fit beside those that are there; a checksum or an alias changes nothing about that.
        let document =
            DocumentRules { no_checksum: false, aliases: BTreeMap::new(), ..target.document.clone() };
        if target.mapping.is_some() || target.settings.is_some() || document != DocumentRules::default() {
            let DocumentRules { rename, omit, partial, take_over: _, no_checksum: _, aliases: _ } = document;
            meaning["index"] = serde_json::json!([target.mapping, target.settings, rename, omit, partial]);
        }
        if target.shared.is_some() || self.shared_value.is_some() {
            meaning["shared"] = serde_json::json!([target.shared, self.shared_value]);
        }
        let digest = Sha256::digest(meaning.to_string().as_bytes());
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    pub fn target_name(&self, allowed: &AllowedTargets) -> crate::Result<TargetName> {
        is_allowed_target(self.effective_target(), allowed)
    }
}

/// A blank text says as little as none.
fn filled(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.trim().is_empty())
}
