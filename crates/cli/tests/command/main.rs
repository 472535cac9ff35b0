//! The real binary, as a person or a script meets it: what it prints, and with which code it ends.
#![expect(clippy::unwrap_used, reason = "verbs of tests may fail as loudly as tests")]

mod book;
mod changelog;
mod clocks;
mod collector;
mod demo;
mod demo_search;
mod descriptors;
mod files;
mod help;
mod indexes;
mod init;
mod installation;
mod logins;
mod mart;
mod memory;
mod meta_store;
mod minimal;
mod newcomer;
mod outputs;
mod outputs_of_services;
mod own_database;
mod plain;
mod pooled;
mod python;
mod python_isolation;
mod reconciles;
mod rejects;
mod rights;
mod stand;
mod state;
mod telling;
mod token;
mod waiting;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// A command whose environment holds nothing of the machine's settings, in an empty directory.
struct Vitrina {
    command: Command,
    directory: TempDir,
}

fn vitrina(arguments: &[&str]) -> Vitrina {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("vitrina"));
    forget_settings(&mut command);
    command.args(arguments).current_dir(directory.path()).env("RUST_BACKTRACE", "1");
    Vitrina { command, directory }
}

/// Of the machine, and of search servers that tests are told to use.
fn forget_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        // The latter name servers for tests, and would be connections of the program.
        if text.starts_with("VITRINA_") || ["ELASTICSEARCH_URL", "OPENSEARCH_URL"].contains(&&*text) {
            command.env_remove(&name);
        }
    }
}

impl Vitrina {
    fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    fn variables(self, all: &[(String, String)]) -> Self {
        all.iter().fold(self, |vitrina, (name, value)| vitrina.variable(name, value))
    }

    fn file(self, name: &str, text: &str) -> Self {
        std::fs::write(self.directory.path().join(name), text).unwrap();
        self
    }

    /// In a directory that others use too.
    fn within(mut self, directory: &Path) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Gives it a text on stdin.
    fn reads(mut self, text: &str) -> Self {
        self = self.file("stdin.txt", text);
        self.command.stdin(std::fs::File::open(self.directory.path().join("stdin.txt")).unwrap());
        self
    }

    fn output(mut self) -> Output {
        self.command.output().unwrap()
    }

    /// What it prints when it ends with this code.
    fn ends(self, code: i32) -> String {
        let output = self.output();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{stdout}\n{stderr}");
        stdout
    }

    /// The one error it ends with: clear, with a hint, and without a backtrace.
    fn refuses(self, code: i32) -> String {
        let output = self.output();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{}\n{stderr}", text(&output.stdout));
        let error = stderr.find("error: ").map(|place| stderr[place..].to_owned()).expect(&stderr);
        assert!(error.contains("\nhint: "), "{stderr}");
        assert_eq!(stderr.matches("error: ").count(), 1, "{stderr}");
        assert!(!stderr.contains("backtrace") && !stderr.contains("panicked"), "{stderr}");
        error
    }

    /// Starts it and leaves it running.
    fn start(mut self) -> Running {
        let child = self.command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Running { child, directory: self.directory }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A running command, killed if the test ends before it.
struct Running {
    child: Child,
    directory: TempDir,
}

impl Running {
    fn of(mut command: Command) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { child, directory: tempfile::tempdir().unwrap() }
    }

    /// Types a command where it runs.
    fn shell(&self, command: &str) -> Output {
        let mut shell = Command::new("sh");
        forget_settings(&mut shell);
        shell.args(["-c", command]).current_dir(self.directory.path()).output().unwrap()
    }

    /// All that comes on stdout up to the line with `mark`.
    fn prints_until(&mut self, mark: &str) -> Vec<String> {
        lines_until(self.child.stdout.as_mut().unwrap(), mark)
    }

    fn says_until(&mut self, mark: &str) -> Vec<String> {
        lines_until(self.child.stderr.as_mut().unwrap(), mark)
    }

    /// All that comes on stderr until each of these was said, in whichever order.
    fn says_all(&mut self, marks: &[&str]) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(missing) =
            marks.iter().find(|mark| !lines.iter().any(|line: &String| line.contains(**mark)))
        {
            lines.extend(self.says_until(missing));
        }
        lines
    }

    /// The address of the API, once it listens and the runner beside it is ready.
    fn is_up(&mut self) -> String {
        let said = self.says_all(&["the API listens", "the runner is ready"]);
        said.iter().find(|line| line.contains("the API listens")).map(|line| address(line)).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    fn ends(mut self, code: i32) {
        let mut rest = String::new();
        self.child.stderr.as_mut().unwrap().read_to_string(&mut rest).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(code), "{rest}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Byte by byte, so that what follows stays for the next reader.
fn lines_until(pipe: &mut impl Read, mark: &str) -> Vec<String> {
    let mut reader = BufReader::with_capacity(1, pipe);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        assert_ne!(reader.read_line(&mut line).unwrap(), 0, "{mark:?} is not among {lines:?}");
        lines.push(line.trim_end().to_owned());
        if line.contains(mark) {
            return lines;
        }
    }
}

/// The address in a log line of the API.
fn address(line: &str) -> String {
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["msg"], "the API listens");
    line["address"].as_str().unwrap().to_owned()
}

/// A directory that the user of a private Postgres can enter, and the path of a demo in it.
fn place() -> (TempDir, PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    let open = std::fs::Permissions::from_mode(0o755);
    let directory = tempfile::Builder::new().permissions(open).tempdir().unwrap();
    let path = directory.path().join("demo");
    (directory, path)
}

/// The variables of a stand, as a script would export them.
fn stand_variables(directory: &Path) -> Vec<(String, String)> {
    let variables = dotenvy::from_path_iter(directory.join("stand.env")).unwrap();
    variables.map(Result::unwrap).collect()
}
