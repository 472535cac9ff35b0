//! A task plan v1: one SQL reader, then Python transforms, strictly in order (R-CFG-3/4).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{AllowedTargets, Violation, is_allowed_target, words::words};

words! {
    TaskKind, "task_type" { Sql = "SQL", Python = "PYTHON" }
}

/// One step of a plan. `task_type` and `body` are text as they were stored: a plan must be able to
/// hold a broken step to report it together with the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub order_index: i32,
    pub task_type: String,
    /// SQL, or the name of a registered function; a reader's may be empty, and its table is read with all columns.
    pub body: String,
    #[serde(default)]
    pub source_table: Option<String>,
    #[serde(default)]
    pub target_table: Option<String>,
}

impl Task {
    pub fn kind(&self) -> Option<TaskKind> {
        self.task_type.parse().ok()
    }
}

/// Empty when the pipeline is configured by `source_query` alone. Parsed steps are put into order
/// too: a request or a snapshot may list them in any.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Task>", into = "Vec<Task>")]
pub struct TaskPlan {
    pub tasks: Vec<Task>,
}

impl From<Vec<Task>> for TaskPlan {
    fn from(tasks: Vec<Task>) -> Self {
        Self::new(tasks)
    }
}

impl From<TaskPlan> for Vec<Task> {
    fn from(plan: TaskPlan) -> Self {
        plan.tasks
    }
}

impl TaskPlan {
    /// Takes steps in any order and puts them into theirs.
    pub fn new(mut tasks: Vec<Task>) -> Self {
        tasks.sort_by_key(|task| task.order_index);
        Self { tasks }
    }

    pub fn reader(&self) -> Option<&Task> {
        self.tasks.first()
    }

    pub fn transforms(&self) -> impl Iterator<Item = &Task> {
        self.tasks.iter().skip(1)
    }

    pub fn target_override(&self) -> Option<&str> {
        self.tasks
            .last()
            .and_then(|task| task.target_table.as_deref())
            .filter(|target| !target.trim().is_empty())
    }

    /// All breaches of the contract of R-CFG-4. Execution begins only when there are none.
    pub fn violations(&self, allowed: &AllowedTargets) -> Vec<Violation> {
        let mut found = self.order_violations();
        for (place, task) in self.tasks.iter().enumerate() {
            found.extend(step_violations(place, task));
        }
        found.extend(self.target_violations(allowed));
        found
    }

    fn order_violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        for task in &self.tasks {
            if task.order_index < 0 {
                let rule = format!("order_index {} is negative", task.order_index);
                found.push(violation("plan.order_negative", task, "order_index", rule));
            }
            if !seen.insert(task.order_index) {
                let rule = format!("two steps have order_index {}", task.order_index);
                found.push(violation("plan.order_duplicate", task, "order_index", rule));
            }
        }
        found
    }

    fn target_violations(&self, allowed: &AllowedTargets) -> Vec<Violation> {
        let mut found = Vec::new();
        let last = self.tasks.len().saturating_sub(1);
        for (place, task) in self.tasks.iter().enumerate() {
            let Some(target) = &task.target_table else { continue };
            if place != last {
                let rule = "only the last step may name a target_table";
                found.push(violation("plan.target_not_last", task, "target_table", rule));
            }
            if let Err(error) = is_allowed_target(target, allowed) {
                found.push(violation("plan.target_refused", task, "target_table", error.to_string()));
            }
        }
        found
    }
}

fn step_violations(place: usize, task: &Task) -> Vec<Violation> {
    let mut found = Vec::new();
    let reads_a_table =
        place == 0 && task.source_table.as_deref().is_some_and(|table| !table.trim().is_empty());
    if task.body.trim().is_empty() && !reads_a_table {
        found.push(violation("plan.body_empty", task, "body", "the body is empty"));
    }
    match (place, task.kind()) {
        (_, None) if task.task_type.trim().is_empty() => {
            found.push(violation("plan.type_empty", task, "task_type", "the task_type is empty"));
        }
        (_, None) => {
            let unknown = task.task_type.parse::<TaskKind>().err().map(|error| error.to_string());
            found.push(violation("plan.type_unknown", task, "task_type", unknown.unwrap_or_default()));
        }
        (0, Some(TaskKind::Python)) => {
            found.push(violation(
                "plan.first_not_sql",
                task,
                "task_type",
                "the first step must be SQL: it reads the source",
            ));
        }
        (1.., Some(TaskKind::Sql)) => {
            let rule = "only the first step may be SQL: the later ones are PYTHON transforms";
            found.push(violation("plan.later_not_python", task, "task_type", rule));
        }
        _ => {}
    }
    if place > 0 && task.source_table.is_some() {
        let rule = "only the first step may name a source_table";
        found.push(violation("plan.source_not_first", task, "source_table", rule));
    }
    found
}

fn violation(code: &'static str, task: &Task, field: &str, message: impl Into<String>) -> Violation {
    Violation::new(code, format!("tasks[{}].{field}", task.order_index), message)
}
