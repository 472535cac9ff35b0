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

pub(super) fn blocks(page: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(page).unwrap();
    let (mut blocks, mut open): (Vec<Block>, Option<Block>) = (Vec::new(), None);
    for (number, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(fence), None) => {
                let (language, info) = fence.split_once(' ').unwrap_or((fence, ""));
                open = Some(Block {
                    line: number + 1,
                    language: language.to_owned(),
                    info: info.to_owned(),
                    body: String::new(),
                });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.body.push_str(&format!("{line}\n")),
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

    /// Why it is not executed, where it is not: `sh not-run="…"`.
    pub(super) fn reason(&self) -> Option<&str> {
        let reason = self.info.strip_prefix("not-run=\"")?.strip_suffix('"')?;
        Some(reason).filter(|reason| !reason.is_empty())
    }

    /// `sh yours`: variables that readers set as it is with them, and the test as it is here.
    pub(super) fn is_the_readers(&self) -> bool {
        self.info == "yours"
    }

    /// The name of a file that the page shows, from the comment in its first line.
    pub(super) fn file(&self) -> Option<&str> {
        let first = self.body.lines().next()?;
        let name = first.strip_prefix("# ").or_else(|| first.strip_prefix("-- "))?;
        let is_file = !self.is_shell() && name.contains('.') && !name.contains(' ');
        is_file.then_some(name)
    }
}
