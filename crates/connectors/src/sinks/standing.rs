//! How a target stands: what is there, beside what its pipeline would make of it.

use std::collections::{BTreeMap, BTreeSet};

/// A target as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    pub exists: bool,
    /// Documents, or rows by the statistics of a table.
    pub rows: Option<u64>,
    /// The physical index behind the name that readers search.
    pub index: Option<String>,
    /// What readers saw before the last load, and can be given back.
    pub previous: Option<String>,
    /// Columns or fields, by name.
    pub fields: Vec<StandingField>,
    /// Statements that would let it take the rows.
    pub lacks: Vec<String>,
    /// Why it cannot take the rows, where no statement mends that.
    pub problem: Option<String>,
}

/// A column or field as its pipeline would make it, and as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingField {
    pub name: String,
    pub declared: Option<String>,
    pub live: Option<String>,
    pub differs: bool,
}

/// By name, whichever side has it. What is there and was not declared differs where declarations are `whole`.
pub(super) fn beside(
    declared: &BTreeMap<String, String>,
    live: &BTreeMap<String, String>,
    whole: bool,
) -> Vec<StandingField> {
    let names: BTreeSet<&String> = declared.keys().chain(live.keys()).collect();
    let field = |name: &String| {
        let (declared, live) = (declared.get(name).cloned(), live.get(name).cloned());
        let differs = declared != live && (whole || declared.is_some());
        StandingField { name: name.clone(), declared, live, differs }
    };
    names.into_iter().map(field).collect()
}
