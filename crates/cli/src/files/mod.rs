//! Configuration as code: YAML files of targets and pipelines, read as one configuration that remembers where each part
//! came from.

mod write;

use std::collections::BTreeSet;
use std::io::Read;
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
        let mut found = Found::default();
        for path in paths {
            found.collect(path, &resolved(path)?)?;
        }
        let mut found = found.files;
        if found.is_empty() {
            let message = "there is no YAML file\nhint: name files, or directories that hold *.yaml";
            return Err(Exit::Usage.fault(message));
        }
        found.sort();
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
        let hint = "hint: name a YAML file or a directory";
        let text = read(path, LARGEST_YAML)
            .map_err(|reason| Exit::Usage.fault(format!("{}: {reason}\n{hint}", path.display())))?;
        self.take(path, &text)
    }

    /// Neither targets nor pipelines.
    pub(crate) fn name_nothing(&self) -> bool {
        self.targets.is_empty() && self.pipelines.is_empty()
    }

    fn take(&mut self, path: &Path, text: &str) -> Result<()> {
        if brackets(text) > DEEPEST {
            let message = format!(
                "{}: lists and maps are nested too deeply (recursion)\nhint: no file needs more than {DEEPEST} levels",
                path.display()
            );
            return Err(Exit::Usage.fault(message));
        }
        // For what is named twice: a map of JSON would keep the last of them without a word.
        serde_norway::from_str::<serde_norway::Value>(text).map_err(|error| unreadable(path, &error))?;
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

#[derive(Default)]
struct Found {
    files: Vec<PathBuf>,
    /// Where they really are: a link to a file beside it is no second file, and a folder that holds itself ends.
    seen: BTreeSet<PathBuf>,
}

impl Found {
    /// Links are followed as long as they stay below `root`, which somebody has named.
    fn collect(&mut self, path: &Path, root: &Path) -> Result<()> {
        let place = resolved(path)?;
        if !place.starts_with(root) {
            let message = format!("{} is a link that leads out of the folder\nhint: name it", path.display());
            return Err(Exit::Usage.fault(message));
        }
        if !self.seen.insert(place.clone()) {
            return Ok(());
        }
        if !place.is_dir() {
            self.files.push(path.to_owned());
            return Ok(());
        }
        let entries = std::fs::read_dir(path).with_context(|| format!("cannot list {}", path.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot list {}", path.display()))?.path();
            let is_yaml = entry.extension().is_some_and(|extension| {
                extension.eq_ignore_ascii_case("yaml") || extension.eq_ignore_ascii_case("yml")
            });
            let is_hidden = entry.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if !is_hidden && (entry.is_dir() || is_yaml) {
                self.collect(&entry, root)?;
            }
        }
        Ok(())
    }
}

fn resolved(path: &Path) -> Result<PathBuf> {
    std::fs::canonicalize(path).map_err(|error| {
        Exit::Usage.fault(format!("{}: {error}\nhint: name a YAML file or a directory", path.display()))
    })
}

/// Each level costs the reader as much as all before it.
const DEEPEST: usize = 1000;
const LARGEST_YAML: u64 = 16 << 20;
const LARGEST_SQL: u64 = 1 << 20;

/// How many are open at a time, at most; those inside of texts count as well.
fn brackets(text: &str) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => continue,
        }
        most = most.max(open);
    }
    most
}

/// A regular file, and not more of it than anybody writes: a pipe or a device has no end.
fn read(path: &Path, largest: u64) -> std::result::Result<String, String> {
    let told = |error: std::io::Error| error.to_string();
    if !std::fs::metadata(path).map_err(told)?.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let mut text = String::new();
    std::fs::File::open(path).map_err(told)?.take(largest + 1).read_to_string(&mut text).map_err(told)?;
    if text.len() as u64 > largest {
        return Err(format!("it is larger than {largest} bytes"));
    }
    match text.contains('\0') {
        true => Err("it contains the character NUL, as a file that is no text does".to_owned()),
        false => Ok(text),
    }
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
    let unusable = |reason: String| {
        refused(format!("{file}: {reason}\nhint: sql_file is a file beside this one, or in a folder below"))
    };
    let folder = beside.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let told = |error: std::io::Error| unusable(error.to_string());
    let path = std::fs::canonicalize(folder.join(file)).map_err(told)?;
    if !path.starts_with(std::fs::canonicalize(folder).map_err(told)?) {
        return Err(unusable("it is outside of the folder".to_owned()));
    }
    let sql = read(&path, LARGEST_SQL).map_err(unusable)?;
    // Editors of some systems begin files with a mark that no server takes for SQL.
    let sql = sql.strip_prefix('\u{feff}').unwrap_or(&sql).to_owned();
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
            ("a/films.sql", "\u{feff}select 1\n"),
            (
                "b.Yml",
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
        assert!(place.ends_with("b.Yml: pipeline plan: tasks/0/body"), "{place}");
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

    #[test]
    fn a_file_with_a_nul_in_it_is_named() {
        let yaml = "pipelines: [{name: x, sql_file: x.sql}]";
        for (sql, text, told) in [("select 1\0", yaml, "x.sql"), ("select 1", "pipelines: []\0", "a.yaml")] {
            let folder = in_a_folder(&[("x.sql", sql), ("a.yaml", text)]);
            let error = Files::read(&[folder.path().to_owned()]).expect_err(told).to_string();
            assert!(error.contains(told) && error.contains("NUL") && error.contains("\nhint: "), "{error}");
        }
    }

    #[test]
    fn sql_comes_from_regular_files_below_the_folder_and_from_nowhere_else() {
        let secret = in_a_folder(&[("secret", "s3cret")]);
        let outside = secret.path().join("secret");
        for sql_file in ["../../etc/passwd", "/etc/passwd", "link.sql", "/dev/zero", ".", "huge.sql"] {
            let yaml = format!("pipelines: [{{name: x, sql_file: {sql_file}}}]");
            let folder = in_a_folder(&[("a.yaml", &yaml), ("huge.sql", &" ".repeat((1 << 20) + 1))]);
            std::os::unix::fs::symlink(&outside, folder.path().join("link.sql")).expect("a link");
            let error = Files::read(&[folder.path().to_owned()]).expect_err(sql_file).to_string();
            assert!(
                error.contains(sql_file) && error.contains("\nhint: ") && !error.contains("s3cret"),
                "{error}"
            );
        }
    }

    #[test]
    fn links_are_followed_within_the_folder_and_not_out_of_it() {
        use std::os::unix::fs::symlink;
        // As Kubernetes mounts a ConfigMap; and a folder that holds itself.
        let folder = in_a_folder(&[
            ("..v1/films.yaml", "pipelines: [{name: films, sql_file: films.sql}]"),
            ("..v1/films.sql", "select 1"),
        ]);
        symlink("..v1", folder.path().join("..data")).expect("a link");
        for file in ["films.yaml", "films.sql"] {
            symlink(format!("..data/{file}"), folder.path().join(file)).expect("a link");
        }
        symlink(".", folder.path().join("again")).expect("a link");
        let files = Files::read(&[folder.path().to_owned()]).expect("files");
        assert_eq!(
            files.configuration(false)["pipelines"],
            json!([{"name": "films", "source_query": "select 1"}])
        );

        let elsewhere = in_a_folder(&[("other.yaml", "pipelines: [{name: other}]")]);
        symlink(elsewhere.path(), folder.path().join("elsewhere")).expect("a link");
        let error = Files::read(&[folder.path().to_owned()]).expect_err("a link out").to_string();
        assert!(error.contains("elsewhere is a link that leads out"), "{error}");
    }

    #[test]
    fn what_is_named_twice_nested_without_end_or_repeated_without_end_is_refused() {
        let deep = format!("pipelines: [{{name: {}1{}}}]", "[".repeat(100_000), "]".repeat(100_000));
        let mut laughs = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for (name, last) in ('b'..='k').zip('a'..='j') {
            laughs.push_str(&format!("{name}: &{name} [{}]\n", vec![format!("*{last}"); 9].join(", ")));
        }
        let twice = "pipelines:\n- name: films\n  source_query: select 1\n  source_query: select 2\n";
        let dashes = format!("pipelines: [{{name: x}}]\nx:\n  {}1", "- ".repeat(50_000));
        let shallow = format!("pipelines: [{{name: {}1{}}}]", "[".repeat(900), "]".repeat(900));
        for (text, told) in [
            (deep.as_str(), "recursion"),
            (&shallow, "recursion"),
            (&dashes, "recursion"),
            (&laughs, "repetition"),
            (twice, "duplicate"),
        ] {
            let folder = in_a_folder(&[("a.yaml", text)]);
            let error = Files::read(&[folder.path().to_owned()]).expect_err(told).to_string();
            assert!(error.contains(told) && error.contains("a.yaml") && error.len() < 1000, "{error}");
        }
    }
}
