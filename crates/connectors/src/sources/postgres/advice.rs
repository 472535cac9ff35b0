//! Which changes nobody would notice, told before a run: of tables that nobody follows, of rows that depend on a followed one
//! in another way than by its key, and of keys whose two spellings differ.

use std::collections::BTreeMap;

use vitrina_core::{Advice, Pipeline, Result};

use super::reader::Reader;

/// Where a feed notices changes.
#[derive(Debug, Default)]
pub(super) struct Noticed {
    /// The table whose rows stand for those of the query.
    pub(super) own: Option<u32>,
    pub(super) watched: Vec<u32>,
    /// Those of them whose key is the change key itself: they are followed in the place of that alone.
    pub(super) by_key: Vec<u32>,
}

/// The relations that a query reads, behind views as well.
#[derive(Default)]
struct Reached {
    /// Name, and in how many places.
    tables: BTreeMap<u32, (String, usize)>,
    /// Name and definition.
    views: BTreeMap<u32, (String, String)>,
}

/// Views within views are followed as far as this.
const DEEPEST: usize = 20;
/// And no more places than this.
const MOST_PLACES: usize = 1000;

pub(super) async fn unnoticed(
    reader: &Reader,
    noticed: &Noticed,
    change_key: &[String],
) -> Result<Vec<Advice>> {
    let reached = Reached::from(reader).await?;
    let Noticed { own, watched, by_key } = noticed;
    let is_followed = |oid: &u32| watched.contains(oid) || *own == Some(*oid);
    let in_one_place = |oid: &u32| by_key.contains(oid) || *own == Some(*oid);
    let names = |wanted: &dyn Fn(&u32, usize) -> bool| {
        let found = reached.tables.iter().filter(|(oid, (_, places))| wanted(oid, *places));
        let mut names: Vec<&str> = found.map(|(_, (name, _))| name.as_str()).collect();
        names.sort_unstable();
        names.join(", ")
    };
    let mut advice = Vec::new();
    let strangers = names(&|oid, _| !is_followed(oid));
    if !strangers.is_empty() {
        advice.push(Advice::warning(
            format!("changes of {strangers} alone are not noticed: nobody follows it"),
            "name it under watch, with the key by which rows of the target depend on it; or load in full, by full_schedule",
        ));
    }
    let twice = names(&|oid, places| in_one_place(oid) && places > 1);
    if !twice.is_empty() {
        advice.push(Advice::warning(
            format!("the query names {twice} more than once: a change is noticed in the place of its key alone, not in rows that depend on it otherwise"),
            "name it under watch as well, with keys that lead to those rows; or load in full, by full_schedule",
        ));
    }
    for (view, definition) in reached.views.values() {
        let findings = vitrina_guard::check_keyed(definition.trim_end().trim_end_matches(';'), change_key);
        advice.extend(findings.into_iter().next().map(|finding| {
            Advice::warning(
                format!(
                    "in view {view} {}: rows that are not read again keep what they had",
                    finding.message
                ),
                "do that behind the mart, in a view that reads it; or load in full, by full_schedule",
            )
        }));
    }
    Ok(advice)
}

impl Reached {
    async fn from(reader: &Reader) -> Result<Self> {
        let sql = "select c.oid, c.oid::regclass::text, case c.relkind when 'v' then pg_catalog.pg_get_viewdef(c.oid) end
                     from unnest($1::text[]) n join pg_catalog.pg_class c on c.oid = to_regclass(n)
                    where c.relkind in ('r', 'p', 'm', 'f', 'v')";
        let mut reached = Self::default();
        let mut names = vitrina_guard::relations(reader.sql());
        for _ in 0..DEEPEST {
            let mut behind = Vec::new();
            for row in &reader.rows_with(sql, &[&names]).await? {
                let (oid, name, definition) = (row.get(0), row.get::<_, String>(1), row.get(2));
                match definition {
                    Some(definition) => {
                        behind.extend(vitrina_guard::relations(definition));
                        reached.views.insert(oid, (name, definition.to_owned()));
                    }
                    None => reached.tables.entry(oid).or_insert((name, 0)).1 += 1,
                }
            }
            if behind.is_empty() || behind.len() > MOST_PLACES {
                break;
            }
            names = behind;
        }
        Ok(reached)
    }
}

/// Keys travel as text: a watched row that spells its key otherwise than the rows that depend on it leads to none of them.
pub(super) async fn spelled_otherwise(
    pipeline: &Pipeline,
    key: &[String],
    reader: &Reader,
) -> Result<Vec<Advice>> {
    let sql = "with recursive typed(place, oid) as (
                     select w.place, a.atttypid from unnest($2::text[]) with ordinality w(name, place)
                       join pg_catalog.pg_attribute a on a.attrelid = pg_catalog.to_regclass($1) and a.attname = w.name
                      union all
                     select d.place, t.typbasetype from typed d join pg_catalog.pg_type t on t.oid = d.oid and t.typtype = 'd')
               select d.oid, pg_catalog.format_type(d.oid, null) from typed d
                 join pg_catalog.pg_type t on t.oid = d.oid and t.typtype <> 'd' order by d.place";
    let mut advice = Vec::new();
    for watch in pipeline.watch.iter().filter(|watch| watch.keys.is_none()) {
        let columns = reader.rows_with(sql, &[&watch.table, &watch.key]).await?;
        for ((name, column), own) in watch.key.iter().zip(&columns).zip(pipeline.change_key_or(key)) {
            let (table, type_oid, type_name) = (&watch.table, column.get(0), column.get::<_, String>(1));
            let Some((own_oid, own_type)) = reader.type_of(own) else { continue };
            if !vitrina_guard::are_spelled_alike(type_oid, own_oid) {
                advice.push(Advice::warning(
                    format!(
                        "{name} of the watched {table} is {type_name}, and {own}, which it stands for, is {own_type}: changes of rows whose two spellings of a value differ are not noticed"
                    ),
                    match watch.key.len() {
                        1 => format!("cast it in `keys`: select x::{own_type} from unnest($1::text[]) x"),
                        _ => format!("let both be of one type, or cast {own} in the query to {type_name}"),
                    },
                ));
            }
        }
    }
    Ok(advice)
}
