//! The columns that a pipeline writes, as either side has them.

use std::collections::HashMap;

use vitrina_core::Result;

use super::super::mart::{Mart, MartColumn};
use super::super::own_part::OwnPart;
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
    /// Without its modifier.
    type_name: String,
    /// With it.
    full_type: String,
    /// Values may be rounded, cut or padded as they are written.
    rounds: bool,
}

impl Compared {
    fn is_built_in(&self) -> bool {
        self.base.oid < FIRST_OF_USERS
    }

    /// Values may be rounded to a precision as they are written. Text never is.
    pub(super) fn rounds(&self) -> bool {
        !self.column.is_text && self.base.rounds
    }

    fn form(&self, source: Option<u32>) -> Form {
        match Form::of(self.base.oid) {
            _ if !self.is_built_in() => Form::Text,
            // Of another width: a value that the mart cannot hold is compared all the same.
            Form::Int if source != Some(self.base.oid) => Form::BigInt,
            form => form,
        }
    }

    /// The type that both sides are compared in: without the mart's modifier, so that a value that was rounded or cut is
    /// not the one of the source.
    fn type_name(&self, source: Option<u32>) -> &str {
        match self.base.oid {
            _ if !self.is_built_in() => "text",
            PADDED => "bpchar",
            _ if self.column.is_text => "text",
            _ if self.form(source) == Form::BigInt => "int8",
            _ => &self.base.type_name,
        }
    }
}

/// In the order in which they come.
pub(super) async fn described(session: &Session, mart: &Mart, origin: &Origin<'_>) -> Result<Vec<Compared>> {
    let sql = "with recursive base (domain, oid, modifier) as (
            select oid, typbasetype, typtypmod from pg_type where typtype = 'd'
            union all select b.domain, t.typbasetype, greatest(b.modifier, t.typtypmod)
                        from base b join pg_type t on t.oid = b.oid and t.typtype = 'd')
        select b.domain, b.oid, format_type(b.oid, -1), format_type(b.oid, b.modifier), b.modifier <> -1
          from base b join pg_type t on t.oid = b.oid and t.typtype <> 'd'";
    let domain = |row: &tokio_postgres::Row| {
        (
            row.get(0),
            Base { oid: row.get(1), type_name: row.get(2), full_type: row.get(3), rounds: row.get(4) },
        )
    };
    let domains: HashMap<u32, Base> = ask(session, sql).await?.iter().map(domain).collect();
    let compared = |name: &String| {
        let column = mart.column(name, "column of the query")?.clone();
        let itself = || Base {
            oid: column.oid,
            type_name: column.type_name.clone(),
            full_type: column.full_type.clone(),
            rounds: column.rounds,
        };
        let base = domains.get(&column.oid).cloned().unwrap_or_else(itself);
        Ok(Compared { column, base })
    };
    origin.columns().iter().map(compared).collect()
}

pub(super) fn target(mart: &Mart, columns: &[Compared], origin: &Origin<'_>) -> Result<Side> {
    let column = |compared: &Compared| {
        let source = origin.type_of(&compared.column.name)?;
        let plain = format!("m.{}", identifier(&compared.column.name));
        let form = compared.form(source);
        let (value, type_name) = match form == Form::BigInt {
            true => (format!("({plain})::int8"), "int8".to_owned()),
            false => (plain.clone(), compared.column.type_name.clone()),
        };
        Ok(SideColumn { name: compared.column.name.clone(), form, type_name, value, indexed: plain })
    };
    let columns: Vec<SideColumn> = columns.iter().map(column).collect::<Result<_>>()?;
    Ok(Side {
        relation: format!("{} m", mart.table),
        key: key(mart, &columns),
        columns,
        newest_last: String::new(),
        refused: Vec::new(),
        own: mart.own.condition("m"),
        counts_keyless: false,
    })
}

pub(super) fn source(mart: &Mart, columns: &[Compared], origin: &Origin<'_>) -> Result<Side> {
    let column = |compared: &Compared| {
        let name = &compared.column.name;
        let plain = format!("{}.{}", origin.alias(), identifier(name));
        let (oid, type_name) = (origin.type_of(name)?, compared.type_name(origin.type_of(name)?));
        let is_same = oid == Some(compared.base.oid) && compared.is_built_in();
        let value = if is_same { plain.clone() } else { format!("({plain}::{type_name})") };
        let indexed = if compares(oid, compared.base.oid) { plain } else { value.clone() };
        Ok(SideColumn {
            name: name.clone(),
            form: compared.form(oid),
            type_name: type_name.to_owned(),
            value,
            indexed,
        })
    };
    let columns: Vec<SideColumn> = columns.iter().map(column).collect::<Result<_>>()?;
    let (relation, newest_last) = (origin.relation(), origin.newest_last());
    // By rows every row of a source is to be written, and one of a foreign value is missing.
    let own = match &mart.own {
        OwnPart::Columns(_) if columns.len() > mart.key.len() => mart.own.condition(origin.alias()),
        _ => "true".to_owned(),
    };
    let (key, refused) = (key(mart, &columns), Vec::new());
    Ok(Side { relation, key, columns, newest_last, refused, own, counts_keyless: true })
}

/// The source's values as the mart would hold them, where it can.
pub(super) fn as_written(side: &Side, columns: &[Compared], origin: &Origin<'_>) -> Vec<SideColumn> {
    let written = |(column, compared): (&SideColumn, &Compared)| {
        let plain = format!("{}.{}", origin.alias(), identifier(&column.name));
        // An explicit cast would cut text.
        let value = match compared.is_built_in() && !compared.column.is_text {
            true => format!("({plain}::{})", compared.base.full_type),
            false => column.value.clone(),
        };
        SideColumn { value, ..column.clone() }
    };
    side.columns.iter().zip(columns).map(written).collect()
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
