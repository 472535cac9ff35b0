//! The Python SDK as this binary carries it, laid out for the interpreter.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use vitrina_core::{Error, Result};

const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/sdk.rs"));

/// A folder of this process alone, which goes with it.
#[derive(Debug)]
pub(crate) struct Sdk {
    folder: TempDir,
}

impl Sdk {
    pub(crate) fn lay_out() -> Result<Self> {
        let unwritable = |error: std::io::Error| {
            Error::fix("python.folder", format!("the Python SDK cannot be laid out: {error}"))
                .hint("the folder for temporary files, TMPDIR, must have a little room")
        };
        let folder = tempfile::Builder::new().prefix("vitrina-sdk-").tempdir().map_err(unwritable)?;
        let package = folder.path().join("vitrina");
        fs::create_dir(&package).map_err(unwritable)?;
        for (name, text) in FILES {
            fs::write(package.join(name), text).map_err(unwritable)?;
        }
        Ok(Self { folder })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}
