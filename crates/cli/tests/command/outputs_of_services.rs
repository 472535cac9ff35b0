//! What verbs that stay tell until they are ready, and when they are told to stop.

use std::io::Read as _;

use nix::sys::signal::Signal;

use super::outputs::{Stand, configured, settings};
use super::{Running, place, vitrina};

/// Of one line of the shell: what it printed and said, up to its end.
struct Transcript {
    typed: &'static str,
    lines: Vec<String>,
}

impl Transcript {
    /// All that came before it was ready, then what came after the signal; where two parts of a process start side by side, in no
    /// order that could be relied on.
    fn of(typed: &'static str, mut running: Running, mut lines: Vec<String>, signal: Signal) -> String {
        lines.sort();
        let transcript = Self { typed, lines };
        running.signal(signal);
        let mut rest = Vec::new();
        running.child.stderr.as_mut().unwrap().read_to_end(&mut rest).unwrap();
        let code = running.child.wait().unwrap().code();
        transcript.ended(signal, &super::text(&rest), code)
    }

    fn ended(self, signal: Signal, rest: &str, code: Option<i32>) -> String {
        let Self { typed, lines } = self;
        let mut rest: Vec<&str> = rest.lines().collect();
        rest.sort_unstable();
        let code = code.map_or("killed".to_owned(), |code| format!("exit code {code}"));
        format!("$ vitrina {typed}\n{}\n{signal}\n{}\n{code}\n", lines.join("\n"), rest.join("\n"))
    }
}

#[tokio::test]
async fn services_tell_when_they_are_ready_and_end_well_when_they_are_told_to() {
    let stand = Stand::new().await;
    let start = |line: &str, name: &str| {
        let arguments: Vec<&str> = line.split(' ').collect();
        configured(vitrina(&arguments), &stand.db).variable("VITRINA_RUNNER_NAME", name).start()
    };
    let mut transcripts = Vec::new();
    for (line, name, ready, signal) in [
        ("serve --listen 127.0.0.1:0", "nobody", &["the API listens"][..], Signal::SIGTERM),
        ("runner", "runner-2", &["the runner is ready"], Signal::SIGINT),
        ("up --listen 127.0.0.1:0", "runner-3", &["the API listens", "the runner is ready"], Signal::SIGINT),
    ] {
        let mut running = start(line, name);
        let said = running.says_all(ready);
        transcripts.push(Transcript::of(line, running, said, signal));
    }
    settings().bind(|| insta::assert_snapshot!("services", transcripts.join("\n")));
}

#[test]
fn a_demo_shows_what_to_look_at_and_ends_when_it_is_told_to() {
    let (_parent, directory) = place();
    let path = directory.to_str().unwrap();
    let size = ["--films", "20", "--ratings", "100", "--listen", "127.0.0.1:0"];
    let mut running = vitrina(&[&["demo", "--dir", path], &size[..]].concat()).start();
    let printed = running.prints_until("Ctrl-C stops everything");
    running.signal(Signal::SIGINT);
    let mut said = String::new();
    running.child.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
    let code = running.child.wait().unwrap().code();
    let transcript = Transcript { typed: "demo", lines: printed }.ended(Signal::SIGINT, "", code);
    let transcript = transcript.replace(path, "[directory]");
    let mut settings = settings();
    settings.add_filter(r"Postgres [0-9.]+ on", "Postgres [version] on");
    settings.bind(|| insta::assert_snapshot!("demo", transcript));
    assert!(said.contains("starting a private Postgres"), "{said}");
    vitrina(&["demo", "--clean", "--dir", path]).ends(0);
}
