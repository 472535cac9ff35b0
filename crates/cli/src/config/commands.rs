//! What a command prints: a secret that a vault keeps.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use super::error::Complaint;

const PATIENCE: Duration = Duration::from_secs(10);

/// With the environment that its vault needs. This program's own settings are not for it: others of this user may read the
/// environment of a command while it runs.
fn shell(command: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("VITRINA_") {
            shell.env_remove(name);
        }
    }
    shell
}

/// Says nothing of what the command printed.
pub(super) fn output(command: &str) -> Result<String, Complaint> {
    let failed = |reason: &str| {
        Complaint::new(format!("refers to a command that {reason}"), "run it by hand as this user")
    };
    let mut child = shell(command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(&format!("cannot be started: {error}")))?;
    let (told, heard) = mpsc::channel();
    if let Some(mut stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut text = String::new();
            // Nobody may listen any more.
            let _ = told.send(stdout.read_to_string(&mut text).map(|_| text));
        });
    }
    let Ok(text) = heard.recv_timeout(PATIENCE) else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(failed("does not end within 10 s"));
    };
    let ended = child.wait().map_err(|error| failed(&format!("is lost: {error}")))?;
    if !ended.success() {
        return Err(failed(&format!("fails with {ended}")));
    }
    text.map_err(|_| failed("prints what is no text"))
}
