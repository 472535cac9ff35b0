//! Where a sink writes, and the one check that decides whether it may (R-CFG-1).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Error, Result};

/// `analytics.film_dim` or `es:film_dim`, parsed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TargetName {
    Postgres {
        schema: String,
        table: String,
    },
    /// What a sink of this kind calls by this name: `es` an index.
    Named {
        kind: String,
        name: String,
    },
}

impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres { schema, table } => write!(f, "{schema}.{table}"),
            Self::Named { kind, name } => write!(f, "{kind}:{name}"),
        }
    }
}

impl std::str::FromStr for TargetName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let unusable = || {
            Error::fix("target.name", format!("{text:?} is no target name"))
                .hint("write analytics.<table> for Postgres or es:<index> for a search index")
        };
        if let Some((kind, name)) = text.split_once(':') {
            let named = || Self::Named { kind: kind.to_owned(), name: name.to_owned() };
            return (is_kind(kind) && is_name(name)).then(named).ok_or_else(unusable);
        }
        match text.split_once('.') {
            Some((schema, table)) if is_identifier(schema) && is_identifier(table) => {
                Ok(Self::Postgres { schema: schema.to_owned(), table: table.to_owned() })
            }
            _ => Err(unusable()),
        }
    }
}

/// Plain identifiers only: what needs quoting in SQL does not need to be a mart.
fn is_identifier(text: &str) -> bool {
    text.len() <= 63
        && text.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

fn is_kind(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase())
}

/// May an alias of this index be called so?
pub fn is_alias_name(text: &str, index: &str) -> bool {
    is_name(text) && text != index
}

/// Further names of an index that are names of others among these targets: their readers would find the documents of both.
pub fn taken_aliases<'a>(
    target: &'a Target,
    others: impl IntoIterator<Item = &'a Target>,
) -> BTreeMap<&'a str, &'a str> {
    let is_taken = |other: &&Target| other.connection == target.connection && other.name != target.name;
    let by_name = others.into_iter().filter(is_taken).filter_map(|other| {
        let (_, index) = other.name.split_once(':')?;
        target.document.aliases.contains_key(index).then_some((index, other.name.as_str()))
    });
    by_name.collect()
}

/// The names both search servers accept, without the marks Vitrina keeps for its own indexes.
fn is_name(text: &str) -> bool {
    (1..=200).contains(&text.len())
        && !text.starts_with("vitrina-")
        && text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-' | '.'))
}

/// Patterns of the server's own configuration: an exact name, or a prefix with one `*` at its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AllowedTargets(pub Vec<String>);

impl Default for AllowedTargets {
    fn default() -> Self {
        Self(vec!["analytics.*".to_owned(), "es:*".to_owned()])
    }
}

/// The outer fence of all writing: called by the API before it saves and by the sink before it opens.
pub fn is_allowed_target(target: &str, allowed: &AllowedTargets) -> Result<TargetName> {
    let name: TargetName = target.parse()?;
    let matches = |pattern: &String| match pattern.strip_suffix('*') {
        Some(prefix) => target.starts_with(prefix),
        None => target == pattern,
    };
    if allowed.0.iter().any(matches) {
        return Ok(name);
    }
    Err(Error::fix("target.not_allowed", format!("target {target} is not allowed"))
        .hint(format!("allowed_targets of the server's configuration: {}", allowed.0.join(", "))))
}

/// A row of `etl.etl_targets`, or what stands for one where there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub name: String,
    /// A named connection of the server's configuration.
    pub connection: String,
    /// The mart's unique key; empty means its primary key.
    pub key: Vec<String>,
    /// Set to the time of writing on rows that changed, and on no others.
    pub touch_column: Option<String>,
    pub create_if_missing: bool,
    pub mapping: Option<Value>,
    pub settings: Option<Value>,
    #[serde(default)]
    pub document: DocumentRules,
    /// Several pipelines write to the mart; `None` where one does.
    #[serde(default)]
    pub shared: Option<Shared>,
}

/// By what several pipelines share a mart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "lowercase", deny_unknown_fields)]
pub enum Shared {
    /// Each writes the rows that have its own value in a column of the key.
    Rows { column: String },
    /// Each writes its own columns of the rows.
    Columns,
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows { column } => write!(f, "rows of {column}"),
            Self::Columns => write!(f, "columns"),
        }
    }
}

/// What has one writer: a target or, where pipelines share it by rows, the rows of one value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TargetPart {
    pub target: String,
    pub shared_value: Option<String>,
}

impl fmt::Display for TargetPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shared_value {
            Some(value) => write!(f, "{} ({value})", self.target),
            None => write!(f, "{}", self.target),
        }
    }
}

/// How a row becomes a document, where the target is a search index.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DocumentRules {
    /// The field of a column, where it has another name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rename: BTreeMap<String, String>,
    /// Columns that are read and not written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub omit: Vec<String>,
    /// Several pipelines write to the index, each the fields of its own columns.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// What already has the index's name and is not Vitrina's may be replaced.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub take_over: bool,
    /// Documents hold columns alone, and no checksum to be compared by.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_checksum: bool,
    /// Further names that readers search, set together with the index's own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub aliases: BTreeMap<String, AliasRules>,
}

/// What readers see through a further name of an index.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AliasRules {
    /// A query, as the server takes it: only documents that it finds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Value>,
    /// Only shards of this routing value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing: Option<String>,
}

impl DocumentRules {
    /// `None` for a column that is not written.
    pub fn field<'a>(&'a self, column: &'a str) -> Option<&'a str> {
        let omitted = self.omit.iter().any(|omitted| omitted == column);
        (!omitted).then(|| self.rename.get(column).map_or(column, String::as_str))
    }
}

impl Target {
    /// Several pipelines may write to one part of it: each writes other columns, or fields, of its rows.
    pub fn is_shared_by_columns(&self) -> bool {
        self.document.partial || self.shared == Some(Shared::Columns)
    }

    /// A target nobody has described: its key is the table's primary key, and a table that is not there is created with the key
    /// that the source proves of its rows.
    pub fn undescribed(name: &TargetName) -> Self {
        let connection = match name {
            TargetName::Postgres { .. } => "marts",
            TargetName::Named { kind, .. } if kind == "es" => "search",
            TargetName::Named { kind, .. } => kind,
        };
        Self {
            name: name.to_string(),
            connection: connection.to_owned(),
            key: Vec::new(),
            touch_column: None,
            create_if_missing: true,
            mapping: None,
            settings: None,
            document: DocumentRules::default(),
            shared: None,
        }
    }
}
