//! A page of the documentation as the test reads it: blocks of code, and what is to be done with them.

use std::path::Path;

/// Text between two fences.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) line: usize,
    pub(super) language: String,
    /// What follows the language.
    pub(super) info: String,
    pub(super) body: String,
}

/// Those of lists too, whose fences are indented.
pub(super) fn blocks(page: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(page).unwrap();
    let (mut blocks, mut open): (Vec<Block>, Option<(usize, Block)>) = (Vec::new(), None);
    for (number, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(fence), None) => {
                let (language, info) = fence.split_once(' ').unwrap_or((fence, ""));
                let block = Block {
                    line: number + 1,
                    language: language.to_owned(),
                    info: info.to_owned(),
                    body: String::new(),
                };
                open = Some((line.len() - line.trim_start().len(), block));
            }
            (Some(_), Some(_)) => blocks.extend(open.take().map(|(_, block)| block)),
            (None, Some((indent, block))) => {
                block.body.push_str(&format!("{}\n", line.get(*indent..).unwrap_or_default()));
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{}: a block is not closed", page.display());
    blocks
}

impl Block {
    pub(super) fn is_shell(&self) -> bool {
        ["sh", "bash", "shell", "console"].contains(&self.language.as_str())
    }

    pub(super) fn is_sql(&self) -> bool {
        self.language == "sql"
    }

    /// Why it is not executed, where it is not: `sh not-run="…"`.
    pub(super) fn reason(&self) -> Option<&str> {
        self.said_of("not-run")
    }

    /// `sh yours`: variables that readers set as it is with them, and the test as it is here.
    pub(super) fn is_the_readers(&self) -> bool {
        self.info == "yours"
    }

    /// `sh until="…"`: stays in a terminal of its own, and is ready when it says so.
    pub(super) fn until(&self) -> Option<&str> {
        self.said_of("until")
    }

    /// `sh after="Ctrl-C"`: when all that stays has been stopped.
    pub(super) fn is_after_an_interrupt(&self) -> bool {
        self.said_of("after") == Some("Ctrl-C")
    }

    /// `sh reads="sql"`: stays, and the SQL that follows is typed into it.
    pub(super) fn reads_sql(&self) -> bool {
        self.said_of("reads") == Some("sql")
    }

    pub(super) fn is_executed(&self) -> bool {
        self.is_shell() && self.reason().is_none()
    }

    /// Said in a way that the test understands.
    pub(super) fn is_understood(&self) -> bool {
        self.info.is_empty()
            || self.is_the_readers()
            || self.until().is_some()
            || self.is_after_an_interrupt()
            || self.reads_sql()
    }

    fn said_of(&self, name: &str) -> Option<&str> {
        let said = self.info.strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"')?;
        Some(said).filter(|said| !said.is_empty())
    }

    /// The name of a file that the page shows, from the comment in its first line.
    pub(super) fn file(&self) -> Option<&str> {
        let first = self.body.lines().next()?;
        let name = first.strip_prefix("# ").or_else(|| first.strip_prefix("-- "))?;
        let is_file = !self.is_shell() && name.contains('.') && !name.contains(' ');
        is_file.then_some(name)
    }
}
