//! What is wrong with a piece of SQL, and where.

use std::fmt;

use serde::Serialize;
use vitrina_core::values::masked;

/// `code` is stable and meant for programs. `line` and `column` count from 1, in characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub code: &'static str,
    pub message: String,
    pub line: u32,
    pub column: u32,
    pub hint: Option<String>,
}

impl Finding {
    /// `at` is a byte of `sql`, as the parser counts.
    pub(crate) fn at(sql: &str, at: usize, code: &'static str, message: impl Into<String>) -> Self {
        let before = &sql[..sql.floor_char_boundary(at)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            code,
            message: message.into(),
            line: count(before.matches('\n').count()),
            column: count(before[line_start..].chars().count()),
            hint: None,
        }
    }

    /// The same, at another place.
    #[must_use]
    pub(crate) fn moved(self, sql: &str, at: usize) -> Self {
        let Self { code, message, hint, .. } = self;
        Self { hint, ..Self::at(sql, at, code, message) }
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

fn count(before: usize) -> u32 {
    u32::try_from(before + 1).unwrap_or(u32::MAX)
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, masked(&self.message))?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_counts_characters_from_one() {
        let sql = "select 'жük',\n  ф";
        let finding = Finding::at(sql, sql.find('ф').unwrap(), "x", "x");
        assert_eq!((finding.line, finding.column), (2, 3));
        let finding = Finding::at(sql, sql.find(',').unwrap(), "x", "x");
        assert_eq!((finding.line, finding.column), (1, 13));
    }

    #[test]
    fn a_position_behind_the_end_is_the_end() {
        let finding = Finding::at("ы", 99, "x", "x");
        assert_eq!((finding.line, finding.column), (1, 2));
    }
}
