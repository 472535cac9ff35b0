//! Where a value was given, in the words `config show --origin` and errors use.

use std::fmt;
use std::path::PathBuf;

use serde::{Serialize, Serializer};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Flag(&'static str),
    Environment(String),
    DotEnv {
        line: usize,
    },
    File {
        path: PathBuf,
        line: usize,
    },
    /// Follows from another setting.
    Derived {
        from: &'static str,
    },
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(f, "flag {name}"),
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::DotEnv { line } => write!(f, ".env:{line}"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Derived { from } => write!(f, "default, from {from}"),
            Self::Default => f.write_str("default"),
        }
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
