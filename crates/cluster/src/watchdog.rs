//! Ends a server and deletes its directory when the process that started it ends, in whatever way.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const POSTGRES: &str = r#"
if read -r pid < "$1/data/postmaster.pid"; then
    kill -QUIT "$pid"
    tries=0
    while kill -0 "$pid" && [ "$tries" -lt 100 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
fi
rm -rf "$1"
"#;

/// Waits for the end of its input, the other end of which only our process holds.
#[derive(Debug)]
pub struct Watchdog(Child);

impl Watchdog {
    pub(crate) fn over(home: &Path) -> io::Result<Self> {
        Self::with(POSTGRES, home)
    }

    /// Runs a script of the shell when our process has ended; the directory is its `$1`.
    /// In a process group of its own, so that Ctrl-C in a terminal does not end it too.
    pub fn with(script: &str, directory: &Path) -> io::Result<Self> {
        Command::new("/bin/sh")
            .args(["-c", &format!("read -r _\n{script}"), "vitrina-watchdog"])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            // It outlives us, and others of our user may read the environment of a process: it needs no password.
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .process_group(0)
            .spawn()
            .map(Self)
    }

    /// Has the script run now. Waiting closes the input first, which lets the watchdog go to work.
    pub fn finish(mut self) {
        let _ = self.0.wait();
    }
}
