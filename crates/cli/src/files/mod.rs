//! Configuration as code: YAML files of targets and pipelines, read as one configuration that remembers where each part
//! came from.

mod write;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::client;
use crate::exit::Exit;

pub(crate) use write::{file_name, yaml};

/// What one file may hold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    targets: Vec<Map<String, Value>>,
    #[serde(default)]
    pipelines: Vec<Map<String, Value>>,
}

/// Where a target or pipeline stands.
#[derive(Debug)]
struct Place {
    file: PathBuf,
    name: String,
}

#[derive(Debug, Default)]
pub(crate) struct Files {
    targets: Vec<Map<String, Value>>,
    pipelines: Vec<Map<String, Value>>,
    target_places: Vec<Place>,
    pipeline_places: Vec<Place>,
}

impl Files {
    /// Files, and all YAML files in directories below.
    pub(crate) fn read(paths: &[PathBuf]) -> Result<Self> {
        let mut found = Vec::new();
        for path in paths {
            collect(path, &mut found)?;
        }
        if found.is_empty() {
            let message = "there is no YAML file\nhint: name files, or directories that hold *.yaml";
            return Err(Exit::Usage.fault(message));
        }
        found.sort();
        found.dedup();
        let mut files = Self::default();
        for path in found {
            files.add(&path)?;
        }
        Ok(files)
    }

    /// Texts of files that are not there, by the names they would have.
    pub(crate) fn of_texts<'a>(texts: impl IntoIterator<Item = (&'a Path, &'a str)>) -> Result<Self> {
        let mut files = Self::default();
        for (path, text) in texts {
            files.take(path, text)?;
        }
        Ok(files)
    }

    fn add(&mut self, path: &Path) -> Result<()> {
        self.take(path, &read(path)?)
    }

    fn take(&mut self, path: &Path, text: &str) -> Result<()> {
        let File { targets, pipelines } =
            serde_norway::from_str(text).map_err(|error| unreadable(path, &error))?;
        for target in targets {
            self.target_places.push(Place { file: path.to_owned(), name: name(&target) });
            self.targets.push(target);
        }
        for mut pipeline in pipelines {
            take_sql(&mut pipeline, "source_query", path)?;
            for task in pipeline.get_mut("tasks").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(task) = task.as_object_mut() {
                    take_sql(task, "body", path)?;
                }
            }
            self.pipeline_places.push(Place { file: path.to_owned(), name: name(&pipeline) });
            self.pipelines.push(pipeline);
        }
        Ok(())
    }

    /// As POST /plan takes it.
    pub(crate) fn configuration(&self, prune: bool) -> Value {
        json!({"targets": self.targets, "pipelines": self.pipelines, "prune": prune})
    }

    /// For what is done with one pipeline at a time.
    pub(crate) fn only_pipeline(&self) -> Result<Value> {
        match self.pipelines.as_slice() {
            [pipeline] => Ok(json!(pipeline)),
            several => {
                let message =
                    format!("there are {} pipelines in it\nhint: name a file with one", several.len());
                Err(Exit::Usage.fault(message))
            }
        }
    }

    /// Each pipeline with the description of its target, as POST /validate takes them.
    pub(crate) fn questions(&self) -> impl Iterator<Item = (usize, Value)> {
        self.pipelines.iter().enumerate().map(|(place, pipeline)| {
            let tasks = pipeline.get("tasks").and_then(Value::as_array);
            let of_last_task = tasks.and_then(|tasks| tasks.last()?.get("target_table"));
            let name = of_last_task.filter(|name| name.is_string()).or_else(|| pipeline.get("target_table"));
            let target = self.targets.iter().find(|target| target.get("name") == name);
            let mut target = target.cloned();
            target.as_mut().map(|target| target.remove("name"));
            (place, json!({"pipeline": pipeline, "target": target}))
        })
    }

    /// An error of the API about these files, told by their names.
    pub(crate) fn explain(&self, error: client::Error) -> anyhow::Error {
        let client::Error::Refused(problem) = &error else { return error.into() };
        if problem.code != "request.invalid" || problem.errors.is_empty() {
            return error.into();
        }
        let told =
            problem.errors.iter().map(|part| format!("{}: {}", self.whereabouts(&part.pointer), part.detail));
        let told = told.collect::<Vec<_>>().join("\n");
        Exit::Usage.fault(format!("{told}\nhint: `vitrina config schema` prints what a file may say"))
    }

    /// `/pipelines/3/source_query` as a person finds it: the file, the pipeline, the field.
    pub(crate) fn whereabouts(&self, pointer: &str) -> String {
        let mut parts = pointer.trim_start_matches('/').splitn(3, '/');
        let (kind, number, field) = (parts.next(), parts.next(), parts.next().unwrap_or_default());
        let (places, noun) = match kind {
            Some("pipelines") => (&self.pipeline_places, "pipeline"),
            Some("targets") => (&self.target_places, "target"),
            _ => return pointer.trim_start_matches('/').to_owned(),
        };
        let place = number.and_then(|number| places.get(number.parse::<usize>().ok()?));
        let Some(Place { file, name }) = place else { return pointer.to_owned() };
        let field = if field.is_empty() { String::new() } else { format!(": {field}") };
        format!("{}: {noun} {name}{field}", file.display())
    }
}

fn name(part: &Map<String, Value>) -> String {
    part.get("name").and_then(Value::as_str).unwrap_or("without a name").to_owned()
}

fn collect(path: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    if path.is_file() {
        found.push(path.to_owned());
        return Ok(());
    }
    let entries = std::fs::read_dir(path).map_err(|error| {
        Exit::Usage.fault(format!("{}: {error}\nhint: name a YAML file or a directory", path.display()))
    })?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {}", path.display()))?.path();
        let is_yaml = entry.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        let is_hidden = entry.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if !is_hidden && (entry.is_dir() || is_yaml) {
            collect(&entry, found)?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| {
        Exit::Usage.fault(format!("{}: {error}\nhint: name a YAML file or a directory", path.display()))
    })
}

/// `sql_file` stands for the SQL itself.
fn take_sql(part: &mut Map<String, Value>, field: &str, beside: &Path) -> Result<()> {
    let Some(file) = part.remove("sql_file") else { return Ok(()) };
    let refused = |message: String| Exit::Usage.fault(format!("{}: {message}", beside.display()));
    let Some(file) = file.as_str() else {
        return Err(refused("sql_file is no text\nhint: write the name of a file".to_owned()));
    };
    if part.contains_key(field) {
        return Err(refused(format!("both sql_file and {field}\nhint: keep one of them")));
    }
    let path = beside.parent().unwrap_or(Path::new(".")).join(file);
    let sql = std::fs::read_to_string(&path)
        .map_err(|error| refused(format!("{file}: {error}\nhint: sql_file is found beside this file")))?;
    part.insert(field.to_owned(), Value::String(sql));
    Ok(())
}

fn unreadable(path: &Path, error: &serde_norway::Error) -> anyhow::Error {
    let hint = "a file holds lists of targets and pipelines; `vitrina config schema` prints its schema";
    Exit::Usage.fault(format!("{}: {error}\nhint: {hint}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_a_folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        folder
    }

    #[test]
    fn a_folder_is_read_with_all_below_it_and_sql_from_files_beside() {
        let folder = in_a_folder(&[
            ("a/films.yaml", "pipelines:\n  - {name: films, sql_file: films.sql}\n"),
            ("a/films.sql", "select 1\n"),
            (
                "b.yml",
                "targets:\n  - {name: analytics.films}\npipelines:\n  - name: plan\n    tasks: [{order_index: 1, sql_file: a/films.sql}]\n",
            ),
            ("notes.txt", "no yaml"),
            (".hidden/x.yaml", "- broken"),
        ]);
        let files = Files::read(&[folder.path().to_owned()]).expect("files");
        let configuration = files.configuration(false);
        assert_eq!(configuration["pipelines"][0], json!({"name": "films", "source_query": "select 1\n"}));
        assert_eq!(configuration["pipelines"][1]["tasks"][0]["body"], "select 1\n");
        let place = files.whereabouts("/pipelines/1/tasks/0/body");
        assert!(place.ends_with("b.yml: pipeline plan: tasks/0/body"), "{place}");
        assert!(files.whereabouts("/targets/0/key").ends_with("target analytics.films: key"));
    }

    #[test]
    fn what_cannot_be_read_names_its_file_and_what_to_do() {
        for (name, text, told) in [
            ("a.yaml", "pipelines: [{name: [}", "a.yaml"),
            ("b.yaml", "pipelins: []", "unknown field `pipelins`"),
            ("c.yaml", "pipelines: [{name: x, sql_file: no.sql}]", "no.sql"),
            ("d.yaml", "pipelines: [{name: x, sql_file: d.yaml, source_query: select 1}]", "both sql_file"),
        ] {
            let folder = in_a_folder(&[(name, text)]);
            let error = Files::read(&[folder.path().to_owned()]).expect_err("an error").to_string();
            assert!(error.contains(told) && error.contains(name) && error.contains("\nhint: "), "{error}");
        }
        let empty = in_a_folder(&[("a.txt", "")]);
        let error = Files::read(&[empty.path().to_owned()]).expect_err("an error").to_string();
        assert!(error.contains("no YAML file"), "{error}");
    }
}
