//! The files: `vitrina.toml`, and one of YAML for each table. None that is there is touched.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use toml::Value as Toml;

use crate::exit::Exit;
use crate::files::{file_name, yaml};
use crate::output::one_line;

use super::Chosen;
use super::address::Address;

pub(super) const CONFIGURATION: &str = "vitrina.toml";
pub(super) const PIPELINES: &str = "pipelines";

/// All that the configuration speaks of.
#[derive(Debug)]
pub(super) struct Plan {
    /// The connection that is read.
    pub(super) connection: String,
    pub(super) from: Address,
    pub(super) to: Address,
    pub(super) is_search: bool,
    /// The schema of the marts.
    pub(super) marts: String,
    pub(super) schemas: Vec<String>,
    pub(super) chosen: Vec<Chosen>,
}

/// Answers what was written.
pub(super) fn write(plan: &Plan, configuration: &Path, directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = vec![(configuration.to_owned(), plan.configuration())];
    for chosen in &plan.chosen {
        let name = file_name(&chosen.name);
        files.push((directory.join(PIPELINES).join(name), plan.pipeline(chosen)));
    }
    if let Some((taken, _)) = files.iter().find(|(path, _)| path.exists()) {
        return Err(taken_already(taken));
    }
    let beside = configuration.parent().filter(|folder| !folder.as_os_str().is_empty());
    for folder in beside.into_iter().chain([directory, &directory.join(PIPELINES)]) {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    for (path, text) in &files {
        put(path, text)?;
    }
    Ok(files.into_iter().map(|(path, _)| path).collect())
}

pub(super) fn taken_already(path: &Path) -> anyhow::Error {
    let hint = "nothing was written; choose another directory with --dir, or move it away";
    Exit::Usage.fault(format!("{} is there already\nhint: {hint}", path.display()))
}

fn put(path: &Path, text: &str) -> Result<()> {
    let created = OpenOptions::new().write(true).create_new(true).open(path);
    match created.and_then(|mut file| file.write_all(text.as_bytes())) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(taken_already(path)),
        done => done.with_context(|| format!("cannot write {}", path.display())),
    }
}

impl Plan {
    fn configuration(&self) -> String {
        let text = |text: &str| Toml::from(text).to_string();
        let schemas = Toml::from(self.schemas.clone());
        let target = match self.is_search {
            true => format!(
                "# The meta-store is a Postgres: VITRINA_DATABASE_URL says which.\n\n[connections.search]\nurl = {}\n",
                text(&self.to.written)
            ),
            false => format!(
                "# The meta-store, in schema etl; the marts are in the same database, in schema {}.\ndatabase_url = {}\n{}",
                self.marts,
                text(&self.to.written),
                self.allowed_targets()
            ),
        };
        format!(
            "# Proposed by `vitrina init`; `vitrina config reference` lists all that can be set.\n\n{target}\n\
             # Read by pipelines, and nothing is written to it. Schemas are named as they are, without quotes.\n\
             [connections.{}]\nurl = {}\nallowed_schemas = {schemas}\n",
            self.connection,
            text(&self.from.written)
        )
    }

    /// Needed where marts are elsewhere than by default.
    fn allowed_targets(&self) -> String {
        let default = vitrina_core::AllowedTargets::default().0;
        let marts = format!("{}.*", self.marts);
        match default.contains(&marts) {
            true => String::new(),
            false => {
                let targets = Toml::from(vec![marts, "es:*".to_owned()]);
                format!("# What pipelines may write.\nallowed_targets = {targets}\n")
            }
        }
    }

    fn pipeline(&self, chosen: &Chosen) -> String {
        let Chosen { name, target, table, proposal } = chosen;
        let about: String =
            proposal.reasons.iter().map(|reason| format!("# - {}\n", one_line(reason))).collect();
        format!(
            "# {} -> {target}, proposed by `vitrina init`:\n{about}# `schedule_interval: 1m` would run {name} every minute.\n{}",
            one_line(table),
            yaml(&self.document(chosen))
        )
    }

    fn document(&self, chosen: &Chosen) -> Value {
        let Chosen { name, target, proposal, .. } = chosen;
        let mut described = json!({"name": target, "key": proposal.key});
        match self.is_search {
            true => described["connection"] = json!("search"),
            false => described["create_if_missing"] = json!(true),
        }
        let mut pipeline = json!({
            "name": name, "source_connection": self.connection, "source_query": proposal.query,
            "target_table": target, "mode": "full",
        });
        if let Some(cursor) = &proposal.cursor {
            pipeline["mode"] = json!("incremental");
            pipeline["incremental_key"] = json!(cursor.column);
            pipeline["incremental_id_key"] = json!(cursor.id);
        }
        json!({"targets": [described], "pipelines": [pipeline]})
    }
}
