//! What a command prints: a secret that a vault keeps.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use super::error::Complaint;

const PATIENCE: Duration = Duration::from_secs(10);

/// Says nothing of what the command printed.
pub(super) fn output(command: &str) -> Result<String, Complaint> {
    let failed = |reason: &str| {
        Complaint::new(format!("refers to a command that {reason}"), "run it by hand as this user")
    };
    let mut child = Command::new("sh")
        .args(["-c", command])
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
