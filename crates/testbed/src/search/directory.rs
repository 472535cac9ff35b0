//! The directory of the search servers of a test run, or of one process. Whoever made it takes them along at its
//! end, whatever that is like.

use std::env;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use uuid::Uuid;
use vitrina_cluster::{Account, Error, Result, Watchdog};

/// The variable by which a test run shares its directory.
pub const SEARCH_DIRECTORY: &str = "VITRINA_TEST_SEARCH_DIRECTORY";

/// A server looks for this file after it has written down its process id, and the watchdog removes it before it
/// reads those: no server starts unseen.
pub(crate) const OPEN: &str = "open";

const LAST_RITES: &str = r#"
rm -f "$1/open"
for pid in "$1"/*/home/pid; do
    read -r pid < "$pid" && [ "$pid" -gt 1 ] && kill -KILL "$pid"
done
tries=0
until rm -rf "$1" || [ "$tries" -ge 100 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
"#;

#[derive(Debug)]
pub struct ServerDirectory {
    path: PathBuf,
    watchdog: Option<Watchdog>,
}

impl ServerDirectory {
    /// An empty one, below the directory for temporary files.
    pub fn create() -> Result<Self> {
        let path = env::temp_dir().join(format!("vitrina-search-{}", Uuid::new_v4().simple()));
        let account = Account::for_data(&path)?;
        fs::create_dir(&path).map_err(at(&path))?;
        let watchdog = Watchdog::with(LAST_RITES, &path).map_err(at(&path))?;
        let mode = Permissions::from_mode(account.home_mode());
        fs::set_permissions(&path, mode).map_err(at(&path))?;
        account.check_reach(&path)?;
        File::create(path.join(OPEN)).map_err(at(&path))?;
        Ok(Self { path, watchdog: Some(watchdog) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends all servers and deletes everything.
    pub fn end(self) {
        if let Some(watchdog) = self.watchdog {
            watchdog.finish();
        }
    }

    /// That of the whole run where there is one.
    pub(super) fn of_this_run() -> PathBuf {
        let of_the_run = env::var_os(SEARCH_DIRECTORY).filter(|path| !path.is_empty());
        of_the_run.map(PathBuf::from).unwrap_or_else(Self::of_this_process)
    }

    /// For servers that are not shared, or that nobody is there to share.
    pub(crate) fn of_this_process() -> PathBuf {
        /// Never dropped, as it is a static: it ends when the process does.
        static DIRECTORY: OnceLock<ServerDirectory> = OnceLock::new();
        let create = || Self::create().unwrap_or_else(|error| panic!("{error}"));
        DIRECTORY.get_or_init(create).path.clone()
    }
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |cause| Error::Directory { path: path.to_owned(), cause }
}
