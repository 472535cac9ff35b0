//! Whoever types a page into a shell, from its first block to its last, and looks at what comes.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::page::{Block, blocks};
use super::{TOKEN, free_address, repository};
use crate::{forget_settings, text};

const TERMINALS: &str = include_str!("terminals.sh");
/// Stands before the output of a block.
const MARK: &str = "@@ block ";
/// Where pages find the API, and the metrics of a runner.
const ADDRESS: &str = "127.0.0.1:8080";
const METRICS: &str = "127.0.0.1:9188";

/// One shell goes through a page, in a directory of its own.
pub(super) struct Reader {
    pub(super) directory: TempDir,
    /// In place of what the page says is the reader's own.
    pub(super) own: Vec<(&'static str, String)>,
    pub(super) variables: Vec<(&'static str, String)>,
    /// In place of addresses and paths that pages name.
    pub(super) instead: Vec<(&'static str, String)>,
    /// Folders of programs that come before those of the machine.
    pub(super) before: Vec<String>,
    /// What a person would see to before going on to the next block.
    pub(super) patience: &'static str,
    /// What is done in the end, however that came.
    pub(super) afterwards: &'static str,
}

impl Reader {
    pub(super) fn at(address: &str) -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            own: Vec::new(),
            variables: Vec::new(),
            instead: vec![(ADDRESS, address.to_owned()), (METRICS, free_address())],
            before: Vec::new(),
            patience: "",
            afterwards: ":",
        }
    }

    pub(super) fn with_token(mut self) -> Self {
        self.variables.extend([("VITRINA_API_TOKEN", TOKEN.to_owned()), ("TOKEN", TOKEN.to_owned())]);
        self
    }

    /// In a clone of the repository whose `make build` has been done: the tests are of the same build.
    pub(super) fn in_a_clone(mut self) -> Self {
        for entry in std::fs::read_dir(repository()).unwrap().map(Result::unwrap) {
            let name = entry.file_name();
            // What is the machine's own is not the reader's.
            if ![".git", ".env", "target"].iter().any(|own| name == *own) {
                symlink(entry.path(), self.directory.path().join(name)).unwrap();
            }
        }
        let make = self.programs().join("make");
        let real = which("make").expect("make is on the path");
        std::fs::create_dir(self.programs()).unwrap();
        std::fs::write(&make, format!("#!/bin/sh\nexec {} -o build -o bootstrap \"$@\"\n", real.display()))
            .unwrap();
        std::fs::set_permissions(&make, Permissions::from_mode(0o755)).unwrap();
        let target = binaries().parent().unwrap().display().to_string();
        self.variables.push(("CARGO_TARGET_DIR", target));
        self
    }

    /// Come before those of the machine.
    fn programs(&self) -> PathBuf {
        self.directory.path().join("programs")
    }

    pub(super) fn follows(&self, page: &str) {
        let blocks = blocks(&repository().join(page));
        let output = self.types(&self.script(&blocks));
        let said = text(&output.stdout);
        assert!(output.status.success(), "{page}: {}\n{said}", output.status);
        let missing = shown(&blocks).filter_map(|(typed, shown)| {
            let (lines, printed) = (self.as_it_is_here(&shown.body), section(&said, typed.line));
            let line = missing_line(&lines, printed)?;
            Some(format!("{page}:{}: {line:?} was not printed:\n{printed}", shown.line))
        });
        let missing: Vec<String> = missing.collect();
        assert!(missing.is_empty(), "{}", missing.join("\n"));
    }

    fn types(&self, script: &str) -> std::process::Output {
        let mut shell = Command::new("bash");
        forget_settings(&mut shell);
        let path = std::env::var("PATH").unwrap();
        let first = [self.programs(), binaries().to_owned()].map(|folder| folder.display().to_string());
        shell.env("PATH", [&first[..], &self.before, &[path]].concat().join(":"));
        shell.envs(self.variables.iter().map(|(name, value)| (name, value)));
        shell.args(["-c", script]).current_dir(self.directory.path()).output().unwrap()
    }

    fn script(&self, blocks: &[Block]) -> String {
        let mut script = format!("{TERMINALS}afterwards() {{ {}; }}\n", self.afterwards);
        let has_psql = blocks.iter().any(Block::reads_sql);
        for block in blocks {
            let Block { line, body, .. } = block;
            let is_typed = block.is_executed() || (has_psql && block.is_sql());
            if let Some(file) = block.file() {
                let _ = write!(
                    script,
                    "mkdir -p \"$(dirname {file})\"; cat > {file} <<'OF_THE_PAGE'\n{body}OF_THE_PAGE\n"
                );
            } else if block.is_shell() && block.is_the_readers() {
                script += &self.settings_of(block);
            } else if is_typed {
                let _ =
                    writeln!(script, "{}\necho; echo '{MARK}{line}'\n{}", self.patience, self.typed(block));
            }
        }
        script
    }

    fn settings_of(&self, block: &Block) -> String {
        let own = |name: &str| self.own.iter().find(|(own, _)| *own == name);
        let names = block.body.lines().filter_map(|line| line.strip_prefix("export ")?.split('=').next());
        let settings = names.map(|name| {
            let (_, value) = own(name).unwrap_or_else(|| panic!("line {}: what is {name} here?", block.line));
            format!("export {name}='{value}'\n")
        });
        settings.collect()
    }

    fn typed(&self, block: &Block) -> String {
        let body = self.as_it_is_here(&block.body);
        match block.until().map(|mark| self.as_it_is_here(mark)) {
            Some(mark) => format!("stays\n(\n{body}) > \"$said_by\" 2>&1 &\nuntil_it_says '{mark}'\n"),
            None if block.reads_sql() => format!("coproc SQL {{\n{body}}} 2>&1\n"),
            None if block.is_sql() => format!("types <<'OF_THE_PAGE'\n{body}OF_THE_PAGE\n"),
            None if block.is_after_an_interrupt() => format!("interrupt\n{body}"),
            None => body,
        }
    }

    fn as_it_is_here(&self, text: &str) -> String {
        self.instead.iter().fold(text.to_owned(), |text, (named, here)| text.replace(named, here))
    }
}

fn binaries() -> &'static Path {
    assert_cmd::cargo::cargo_bin!("vitrina").parent().unwrap()
}

fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Blocks that are typed and followed by what they print.
fn shown(blocks: &[Block]) -> impl Iterator<Item = (&Block, &Block)> {
    let has_psql = blocks.iter().any(Block::reads_sql);
    let is_typed = move |block: &Block| block.is_executed() || (has_psql && block.is_sql());
    let pairs = blocks.iter().zip(blocks.iter().skip(1));
    pairs.filter(move |(typed, shown)| is_typed(typed) && shown.language == "text")
}

fn section(said: &str, line: usize) -> &str {
    let mark = format!("{MARK}{line}\n");
    let start = said.find(&mark).map(|place| place + mark.len()).unwrap();
    said[start..].split(MARK).next().unwrap()
}

/// They come in their order, and with others between them where the page leaves some out.
fn missing_line<'a>(shown: &'a str, printed: &str) -> Option<&'a str> {
    let mut rest = printed.lines();
    shown.lines().find(|line| !rest.any(|printed| is_shown(line.trim(), printed)))
}

/// `…` on the page stands for what is another every time, and how long something took always is.
fn is_shown(line: &str, printed: &str) -> bool {
    let parts = line.split('…').flat_map(parts_without_times);
    let mut rest = Some(printed);
    for part in parts {
        rest = rest.and_then(|rest| Some(&rest[rest.find(&part)? + part.len()..]));
    }
    rest.is_some()
}

/// `in 0.42 s` says that it took some time.
fn parts_without_times(part: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for word in part.split_inclusive(' ') {
        match word.trim_end().parse::<f64>() {
            Ok(_) if parts.last().is_some_and(|before| before.ends_with("in ")) => parts.push(" ".to_owned()),
            _ => parts.last_mut().expect("one at least").push_str(word),
        }
    }
    parts
}

#[test]
fn what_a_page_shows_may_leave_out_what_is_another_every_time_and_nothing_else() {
    assert!(is_shown("a: 5 rows, in 0.42 s", "a: 5 rows, in 1.07 s"));
    assert!(is_shown("run … is SUCCESS", "run 7 is SUCCESS: 1 rows"));
    assert!(!is_shown("a: 5 rows, in 0.42 s", "a: 6 rows, in 0.42 s"));
    assert!(!is_shown("run … is SUCCESS", "run 7 is FAILED"));
}
