//! What is wrong with a configuration: every problem with its key, its origin and a hint, and never a secret.

use std::fmt;
use std::path::Path;

use super::origin::Origin;

/// Everything that is wrong, at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    pub problems: Vec<Problem>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// None where no setting is to blame, such as a file that cannot be parsed.
    pub key: Option<String>,
    pub origin: Option<Origin>,
    pub message: String,
    pub hint: Option<String>,
}

/// What a parser has against a value, before key and origin are known.
pub(crate) struct Complaint {
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl Complaint {
    pub(super) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: Some(hint.into()) }
    }

    pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        Self::new(
            format!("{} cannot be read: {error}", path.display()),
            "name a file that is there and can be read",
        )
    }

    pub(super) fn about(self, key: &str, origin: &Origin) -> Problem {
        Problem { key: Some(key.to_owned()), ..self.at(Some(origin.clone())) }
    }

    pub(super) fn at(self, origin: Option<Origin>) -> Problem {
        Problem { key: None, origin, message: self.message, hint: self.hint }
    }
}

/// As clap shows it, behind the value.
impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it {}", self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "\nhint: {hint}"))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [problem] = self.problems.as_slice() {
            return write!(f, "{problem}");
        }
        write!(f, "the configuration has {} problems", self.problems.len())?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n{problem}"))
    }
}

impl std::error::Error for ConfigError {}
