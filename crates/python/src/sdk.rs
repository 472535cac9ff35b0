//! The Python SDK as this binary carries it, laid out for the interpreter.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use vitrina_core::{Error, Result};

const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/sdk.rs"));
/// An interpreter puts the folder of the file it starts first on its path, and with `-m` the folder that the runner happens
/// to be in, which is nobody's module: this file has a folder of its own.
const START: &str = "from vitrina.worker import main\n\nif __name__ == \"__main__\":\n    main()\n";

/// Workers may be of another user, who has to read it; there is nothing in it that is secret.
const FOLDER: u32 = 0o755;
const FILE: u32 = 0o644;

/// A folder of this process alone, which goes with it.
#[derive(Debug)]
pub struct Sdk {
    folder: TempDir,
}

impl Sdk {
    pub fn lay_out() -> Result<Self> {
        let unwritable = |error: std::io::Error| {
            Error::fix("python.folder", format!("the Python SDK cannot be laid out: {error}"))
                .hint("the folder for temporary files, TMPDIR, must have a little room")
        };
        let folder = tempfile::Builder::new().prefix("vitrina-sdk-").tempdir().map_err(unwritable)?;
        let sdk = Self { folder };
        let (package, start) = (sdk.path().join("vitrina"), sdk.path().join("start"));
        for folder in [&package, &start] {
            fs::create_dir(folder).map_err(unwritable)?;
        }
        for (name, text) in FILES {
            write(&package.join(name), text).map_err(unwritable)?;
        }
        write(&sdk.start(), START).map_err(unwritable)?;
        for folder in [package.as_path(), &start, sdk.path()] {
            fs::set_permissions(folder, Permissions::from_mode(FOLDER)).map_err(unwritable)?;
        }
        Ok(sdk)
    }

    /// The program of a worker.
    pub(crate) fn start(&self) -> PathBuf {
        self.path().join("start/vitrina_worker.py")
    }

    /// What PYTHONPATH has to name.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Whatever the umask says.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    fs::write(file, text)?;
    fs::set_permissions(file, Permissions::from_mode(FILE))
}
