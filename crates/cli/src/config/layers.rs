//! Collects what defaults, file, `.env`, environment and flags give, the stronger over the weaker.

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::error::{Complaint, Problem};
use super::known::{self, SEARCH_VARIABLES, SETTINGS};
use super::{Inputs, Origin, dot_env};

pub(super) struct Layers {
    pub(super) given: BTreeMap<String, Given>,
    pub(super) environment: Variables,
    pub(super) dot_env: Variables,
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
    /// By a flag or by the environment of the process.
    pub(super) is_file_named: bool,
}

/// A value as it was written, references and all.
#[derive(Clone)]
pub(super) struct Given {
    pub(super) written: Written,
    pub(super) origin: Origin,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Written {
    Text(String),
    List(Vec<String>),
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::List(items) => f.write_str(&items.join(",")),
        }
    }
}

/// Empty variables count as not set: compose files pass them on for want of a value. But an empty one of
/// the process still hides that of `.env`, so that a single command can do without it.
type Variables = BTreeMap<String, (String, Origin)>;

pub(super) fn collect(inputs: &Inputs) -> Layers {
    let mut problems = Vec::new();
    let environment = inputs.environment.iter();
    let environment =
        environment.map(|(name, value)| (name.clone(), value.clone(), Origin::Environment(name.clone())));
    let not_hidden = |(name, ..): &(String, String, Origin)| !inputs.environment.contains_key(name);
    let mut layers = Layers {
        given: BTreeMap::new(),
        environment: variables(environment),
        dot_env: variables(dot_env::read(&inputs.directory, &mut problems).into_iter().filter(not_hidden)),
        problems,
        warnings: Vec::new(),
        is_file_named: false,
    };
    layers.take_defaults();
    layers.take_file(inputs);
    layers.take_variables(&layers.dot_env.clone());
    layers.take_variables(&layers.environment.clone());
    layers.refuse_two_search_servers();
    layers.take_flags(inputs);
    layers
}

fn variables(all: impl IntoIterator<Item = (String, String, Origin)>) -> Variables {
    let set = all.into_iter().filter(|(_, value, _)| !value.is_empty());
    set.map(|(name, value, origin)| (name, (value, origin))).collect()
}

impl Layers {
    /// The environment first, then `.env`.
    pub(super) fn variable(&self, name: &str) -> Option<&(String, Origin)> {
        self.environment.get(name).or_else(|| self.dot_env.get(name))
    }

    /// Whoever only stands in a folder has not asked for what its files say.
    pub(super) fn is_asked_for(&self, origin: &Origin) -> bool {
        match origin {
            Origin::Flag(_) | Origin::Environment(_) => true,
            Origin::File { .. } => self.is_file_named,
            Origin::DotEnv { .. } | Origin::Derived { .. } | Origin::Default => false,
        }
    }

    fn give(&mut self, key: String, written: Written, origin: Origin) {
        self.given.insert(key, Given { written, origin });
    }

    fn take_defaults(&mut self) {
        for setting in SETTINGS.iter().filter(|setting| !setting.key.contains('<')) {
            if let known::Default::Value(text) = setting.default {
                self.give(setting.key.to_owned(), Written::Text(text.to_owned()), Origin::Default);
            }
        }
    }

    fn take_variables(&mut self, variables: &Variables) {
        for (value, origin) in SEARCH_VARIABLES.iter().filter_map(|name| variables.get(*name)) {
            self.give("connections.search.url".to_owned(), Written::Text(value.clone()), origin.clone());
        }
        for (name, (value, origin)) in variables.iter().filter(|(name, _)| name.starts_with("VITRINA_")) {
            if let Some(key) = known::key_of(name) {
                self.give(key, Written::Text(value.clone()), origin.clone());
            } else if !known::is_other_variable(name) {
                let message = format!("{name} is no variable of Vitrina and changes nothing");
                let complaint = Complaint { message, hint: known::suggest_variable(name) };
                self.warnings.push(complaint.at(Some(origin.clone())));
            }
        }
    }

    fn refuse_two_search_servers(&mut self) {
        let [one, other] = SEARCH_VARIABLES;
        if let (Some(_), Some((_, origin))) = (self.variable(one), self.variable(other)) {
            let complaint =
                Complaint::new(format!("{one} and {other} are both set"), "unset the one you do not use");
            self.problems.push(complaint.about("connections.search.url", origin));
        }
    }

    fn take_flags(&mut self, inputs: &Inputs) {
        for flag in &inputs.flags {
            let origin = Origin::Flag(flag.name);
            match known::find(&flag.key) {
                Some(_) => self.give(flag.key.clone(), Written::Text(flag.value.clone()), origin),
                None => self.problems.push(unknown(&flag.key, &origin)),
            }
        }
    }

    fn take_file(&mut self, inputs: &Inputs) {
        let (path, named_by) = self.file_to_read(inputs);
        self.is_file_named = matches!(named_by, Some(Origin::Flag(_) | Origin::Environment(_)));
        match std::fs::read_to_string(inputs.directory.join(&path)) {
            Ok(text) => self.take_toml(&path, &text),
            Err(error) if error.kind() == ErrorKind::NotFound && named_by.is_none() => {}
            Err(error) => self.problems.push(Complaint::unreadable(&path, &error).at(named_by)),
        }
    }

    /// The file, and who asked for it; nobody asks for `./vitrina.toml`, so it may be missing.
    fn file_to_read(&self, inputs: &Inputs) -> (PathBuf, Option<Origin>) {
        if let Some(path) = &inputs.file {
            return (path.clone(), Some(Origin::Flag("--config")));
        }
        match self.variable(known::FILE_VARIABLE) {
            Some((path, origin)) => (path.into(), Some(origin.clone())),
            None => ("vitrina.toml".into(), None),
        }
    }

    fn take_toml(&mut self, path: &Path, text: &str) {
        let origin_at = |position: usize| {
            let before = &text[..position.min(text.len())];
            Origin::File { path: path.to_owned(), line: before.matches('\n').count() + 1 }
        };
        match DeTable::parse(text) {
            Ok(table) => self.take_table("", table.get_ref(), &origin_at),
            Err(error) => {
                let position = error.span().map_or(0, |span| span.start).min(text.len());
                let line_start = text[..position].rfind('\n').map_or(0, |newline| newline + 1);
                let column = text[line_start..position].chars().count() + 1;
                // The error's own Display would quote the line, which may hold a secret.
                let message = format!("invalid TOML at column {column}: {}", error.message());
                let hint = "texts stand in quotes, parts in [brackets]; `vitrina config reference` lists what can be set";
                self.problems.push(Complaint::new(message, hint).at(Some(origin_at(position))));
            }
        }
    }

    fn take_table(&mut self, section: &str, table: &DeTable<'_>, origin_at: &impl Fn(usize) -> Origin) {
        for (name, value) in table {
            let separator = if section.is_empty() { "" } else { "." };
            let key = format!("{section}{separator}{}", name.get_ref());
            let origin = origin_at(name.span().start);
            match value.get_ref() {
                DeValue::Table(inner) if !inner.is_empty() => self.take_table(&key, inner, origin_at),
                DeValue::Table(_) if known::is_section(&key) => {}
                _ if known::find(&key).is_none() => self.problems.push(unknown(&key, &origin)),
                value => match written(value) {
                    Some(written) => self.give(key, written, origin),
                    None => self.problems.push(
                        Complaint::new("holds a table or a nested list", "write a text or a list of texts")
                            .about(&key, &origin),
                    ),
                },
            }
        }
    }
}

fn written(value: &DeValue<'_>) -> Option<Written> {
    match value {
        DeValue::Array(items) => {
            items.iter().map(|item| scalar(item.get_ref())).collect::<Option<_>>().map(Written::List)
        }
        value => scalar(value).map(Written::Text),
    }
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(number) => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(truth) => Some(truth.to_string()),
        DeValue::Datetime(time) => Some(time.to_string()),
        DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

fn unknown(key: &str, origin: &Origin) -> Problem {
    Complaint::new("unknown key", known::suggest_key(key)).about(key, origin)
}
