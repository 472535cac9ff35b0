//! Ends a server and deletes its directory when the process that started it ends, in whatever way.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Waits for the end of its input, the other end of which only our process holds.
const SCRIPT: &str = r#"
read -r _
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

#[derive(Debug)]
pub(crate) struct Watchdog(Child);

impl Watchdog {
    /// In a process group of its own, so that Ctrl-C in a terminal does not end it too.
    pub(crate) fn over(home: &Path) -> io::Result<Self> {
        Command::new("/bin/sh")
            .args(["-c", SCRIPT, "vitrina-watchdog"])
            .arg(home)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn()
            .map(Self)
    }

    /// Waiting closes the input first, which lets the watchdog go to work.
    pub(crate) fn finish(mut self) {
        let _ = self.0.wait();
    }
}
