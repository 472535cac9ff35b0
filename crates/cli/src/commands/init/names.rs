//! Names for connections, targets and pipelines, made of names that tables and databases have.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::introspect::Table;

const MAX_BYTES: usize = 60;

/// What the configuration uses for something else.
const RESERVED_CONNECTIONS: [&str; 2] = ["marts", "search"];

/// Of a database, as a connection may be called.
pub(super) fn connection(database: &str) -> String {
    match plain(database) {
        Some(name) if !RESERVED_CONNECTIONS.contains(&name.as_str()) => name,
        _ => "source".to_owned(),
    }
}

pub(super) fn is_plain(name: &str) -> bool {
    plain(name).is_some_and(|plain| plain == name)
}

/// Names that are in use, by whomever.
#[derive(Debug, Default)]
pub(super) struct Names(pub(super) BTreeSet<String>);

impl Names {
    /// A name of its own for a pipeline and what it writes: the table's, where nobody else has it.
    pub(super) fn take(&mut self, table: &Table) -> String {
        let own = plain(&table.name).unwrap_or_else(|| "table".to_owned());
        let with_schema = plain(&format!("{}_{own}", table.schema)).unwrap_or_else(|| own.clone());
        let numbered = (2..).map(|number| format!("{with_schema}_{number}"));
        let mut names = [own, with_schema.clone()].into_iter().chain(numbered);
        let free = names.find(|name| !self.0.contains(name)).expect("numbers do not end");
        self.0.insert(free.clone());
        free
    }
}

/// Small letters, digits and `_`, a letter first; None where nothing of the name is left.
fn plain(name: &str) -> Option<String> {
    let mut plain = String::new();
    let (mut before, mut is_small) = ('_', false);
    for c in name.chars() {
        // Of `filmWork` two words, of `HTTP` one.
        if c.is_ascii_uppercase() && is_small && before != '_' {
            plain.push('_');
        }
        is_small = c.is_ascii_lowercase() || c.is_ascii_digit();
        let written = if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
        if written != '_' || before != '_' {
            plain.push(written);
            before = written;
        }
    }
    let plain: String = plain.trim_matches('_').chars().take(MAX_BYTES).collect();
    let first = plain.chars().next()?;
    // A pipeline is found by its name or its id: no name may look like one.
    match first.is_ascii_digit() || Uuid::parse_str(&plain).is_ok() {
        true => Some(format!("t_{plain}")),
        false => Some(plain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_small_letters_digits_and_underscores() {
        for (name, expected) in [
            ("film_work", Some("film_work")),
            ("FilmWork", Some("film_work")),
            ("HTTP Log", Some("http_log")),
            ("order-lines (old)", Some("order_lines_old")),
            ("2024", Some("t_2024")),
            ("0123456789abcdef0123456789abcdef", Some("t_0123456789abcdef0123456789abcdef")),
            ("Заказы", None),
            ("_", None),
        ] {
            assert_eq!(plain(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn nobody_gets_a_name_twice() {
        let table = |schema: &str, name: &str| Table {
            schema: schema.to_owned(),
            name: name.to_owned(),
            ..Table::default()
        };
        let mut names = Names(BTreeSet::from(["film".to_owned()]));
        let taken = [("a", "film"), ("a", "Film"), ("a", "Заказы"), ("b", "Фильмы")]
            .map(|(schema, name)| names.take(&table(schema, name)));
        assert_eq!(taken, ["a_film", "a_film_2", "table", "b_table"]);
    }

    #[test]
    fn a_connection_is_called_as_its_database() {
        assert_eq!(["Cinema", "marts", "Кино"].map(connection), ["cinema", "source", "source"]);
    }
}
