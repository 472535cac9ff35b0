//! The columns that a pipeline writes, as either side has them.

use std::collections::HashMap;

use vitrina_core::Result;

use super::super::mart::{Mart, MartColumn};
use super::form::Form;
use super::origin::Origin;
use super::side::{Side, SideColumn};
use super::{Session, ask};
use crate::sql::identifier;

/// Types from here on are no built-in ones.
const FIRST_OF_USERS: u32 = 16_384;
const PADDED: u32 = 1042;

/// A column of the mart that is written.
#[derive(Debug)]
pub(super) struct Compared {
    pub(super) column: MartColumn,
    /// What a domain stands for, else the type itself.
    base: Base,
}

#[derive(Debug, Clone)]
struct Base {
    oid: u32,
    full_type: String,
}

impl Compared {
    fn is_built_in(&self) -> bool {
        self.base.oid < FIRST_OF_USERS
    }

    /// Values may be rounded to a precision as they are written. Text never is.
    pub(super) fn rounds(&self) -> bool {
        !self.column.is_text && self.base.full_type.contains('(')
    }

    fn form(&self) -> Form {
        if self.is_built_in() { Form::of(self.base.oid) } else { Form::Text }
    }

    /// A value of another type as the mart would hold it. Text is not cut: what is too long is refused, not written.
    fn cast(&self, value: &str) -> String {
        match self.base.oid {
            _ if !self.is_built_in() => format!("{value}::text"),
            PADDED => format!("{value}::bpchar"),
            _ if self.column.is_text => format!("{value}::text"),
            _ => format!("{value}::{}", self.base.full_type),
        }
    }
}

/// In the order in which they come.
pub(super) async fn described(session: &Session, mart: &Mart, origin: &Origin<'_>) -> Result<Vec<Compared>> {
    let sql = "select t.oid, t.typbasetype, format_type(t.typbasetype, t.typtypmod) from pg_type t where t.typtype = 'd'";
    let domain = |row: &tokio_postgres::Row| (row.get(0), Base { oid: row.get(1), full_type: row.get(2) });
    let domains: HashMap<u32, Base> = ask(session, sql).await?.iter().map(domain).collect();
    let compared = |name: &String| {
        let column = mart.column(name, "column of the query")?.clone();
        let itself = || Base { oid: column.oid, full_type: column.full_type.clone() };
        let base = domains.get(&column.oid).cloned().unwrap_or_else(itself);
        Ok(Compared { column, base })
    };
    origin.columns().iter().map(compared).collect()
}

pub(super) fn target(mart: &Mart, columns: &[Compared]) -> Side {
    let column = |compared: &Compared| {
        let indexed = format!("m.{}", identifier(&compared.column.name));
        SideColumn {
            name: compared.column.name.clone(),
            form: compared.form(),
            type_name: compared.column.type_name.clone(),
            value: indexed.clone(),
            indexed,
        }
    };
    let columns: Vec<SideColumn> = columns.iter().map(column).collect();
    Side {
        relation: format!("{} m", mart.table),
        key: key(mart, &columns),
        columns,
        newest_last: String::new(),
        refused: Vec::new(),
    }
}

pub(super) fn source(mart: &Mart, columns: &[Compared], origin: &Origin<'_>) -> Result<Side> {
    let column = |compared: &Compared| {
        let name = &compared.column.name;
        let plain = format!("{}.{}", origin.alias(), identifier(name));
        let (oid, form) = (origin.type_of(name)?, compared.form());
        let is_same = oid == Some(compared.column.oid) && !compared.rounds() && compared.is_built_in();
        let value = if is_same { plain.clone() } else { format!("({})", compared.cast(&plain)) };
        let indexed = match compares(oid, compared.base.oid) && !compared.rounds() {
            true => plain,
            false => value.clone(),
        };
        let type_name = match compared.is_built_in() {
            // A domain of the mart's is unknown to the source.
            true if compared.base.oid != compared.column.oid => compared.base.full_type.clone(),
            true => compared.column.type_name.clone(),
            false => "text".to_owned(),
        };
        Ok(SideColumn { name: name.clone(), form, type_name, value, indexed })
    };
    let columns: Vec<SideColumn> = columns.iter().map(column).collect::<Result<_>>()?;
    let (relation, newest_last) = (origin.relation(), origin.newest_last());
    Ok(Side { relation, key: key(mart, &columns), columns, newest_last, refused: Vec::new() })
}

/// The source's own values, which the mart's types may not be able to hold.
pub(super) fn as_read(side: &Side, origin: &Origin<'_>) -> Vec<SideColumn> {
    let plain = |column: &SideColumn| {
        let value = format!("{}.{}", origin.alias(), identifier(&column.name));
        SideColumn { form: Form::Text, value, ..column.clone() }
    };
    side.columns.iter().map(plain).collect()
}

/// Values of the one compare with those of the other as they are, by an index as well.
fn compares(source: Option<u32>, mart: u32) -> bool {
    const INTEGERS: [u32; 3] = [20, 21, 23];
    const TEXTS: [u32; 3] = [19, 25, 1043];
    let both = |types: &[u32]| source.is_some_and(|source| types.contains(&source)) && types.contains(&mart);
    (source == Some(mart) && mart < FIRST_OF_USERS) || both(&INTEGERS) || both(&TEXTS)
}

fn key(mart: &Mart, columns: &[SideColumn]) -> Vec<SideColumn> {
    let of_name = |name: &String| columns.iter().find(|column| column.name == *name).cloned();
    mart.key.iter().filter_map(of_name).collect()
}
