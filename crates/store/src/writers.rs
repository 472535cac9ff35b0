//! Which pipelines write to which targets. A target has one writer, unless it is declared to be shared: a full load of a
//! second one would delete and revert what the first has written. By rows each value has one writer.

use std::collections::BTreeMap;

use sqlx::PgConnection;
use uuid::Uuid;
use vitrina_core::{PipelineId, TargetPart};

use crate::pipelines::EFFECTIVE_TARGET;
use crate::scope::{OUTSIDE, within};
use crate::{Error, Result, Scope, Store};

/// The pipelines that write to a target, or to its rows of one value.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Writers {
    /// Several may: the target says so.
    pub shared: bool,
    /// Those outside of the scope have no name of their own.
    pub names: BTreeMap<PipelineId, String>,
}

impl Writers {
    /// There is one too many.
    pub fn contested(&self) -> bool {
        self.names.len() > 1 && !self.shared
    }

    /// What to report of a target with these writers.
    pub fn refusal(&self, part: &TargetPart, but: Option<PipelineId>) -> Error {
        let others = self.names.iter().filter(|(id, _)| Some(**id) != but);
        let mut owners: Vec<String> = others.map(|(_, name)| name.clone()).collect();
        owners.sort();
        owners.dedup();
        Error::TargetOwned { part: part.clone(), owners }
    }
}

impl Store {
    pub async fn writers(&self, part: &TargetPart) -> Result<Writers> {
        let mut connection = self.pool.acquire().await?;
        let mut found = read(&mut connection, Some(std::slice::from_ref(&part.target)), &self.scope).await?;
        Ok(found.remove(part).unwrap_or_default())
    }

    /// Targets with one writer too many: of rows that were written past the API, or by releases that did not refuse it.
    pub async fn contested_targets(&self) -> Result<BTreeMap<TargetPart, Writers>> {
        let mut connection = self.pool.acquire().await?;
        let mut found = read(&mut connection, None, &self.scope).await?;
        found.retain(|_, writers| writers.contested());
        Ok(found)
    }
}

/// The writers of some targets at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot(BTreeMap<TargetPart, Writers>);

impl Snapshot {
    pub(crate) async fn take(tx: &mut PgConnection, targets: &[String], scope: &Scope) -> Result<Self> {
        read(tx, Some(targets), scope).await.map(Self)
    }

    /// Refuses a writer that has come since, and a target that is shared no more. Pairs that were there before stay, so that
    /// either of them can be edited without being moved first.
    pub(crate) fn refuse_new_writers(&self, after: &Self) -> Result<()> {
        for (part, now) in after.0.iter().filter(|(_, now)| now.contested()) {
            let before = self.0.get(part).cloned().unwrap_or_default();
            let newest = now.names.keys().rfind(|id| !before.names.contains_key(id));
            if newest.is_some() || !before.contested() {
                return Err(now.refusal(part, newest.copied()));
            }
        }
        Ok(())
    }
}

async fn read(
    connection: &mut PgConnection,
    targets: Option<&[String]>,
    scope: &Scope,
) -> Result<BTreeMap<TargetPart, Writers>> {
    let sql = format!(
        "select w.target, case when t.shared ->> 'by' = 'rows' then w.shared_value end, w.id, case when w.seen then w.name else $2 end,
                coalesce((t.document ->> 'partial')::boolean, false) or coalesce(t.shared ->> 'by' = 'columns', false)
           from (select p.id, p.name, p.shared_value, {EFFECTIVE_TARGET} as target, {within} as seen from etl.etl_pipelines p) w
           left join etl.etl_targets t on t.name = w.target
          where $1::text[] is null or w.target = any($1)",
        within = within("p", 3),
    );
    let read = sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(targets).bind(OUTSIDE).bind(scope.tags());
    let rows: Vec<(String, Option<String>, Uuid, String, bool)> = read.fetch_all(connection).await?;
    let mut found: BTreeMap<TargetPart, Writers> = BTreeMap::new();
    for (target, shared_value, id, name, shared) in rows {
        let writers = found.entry(TargetPart { target, shared_value }).or_default();
        writers.shared = shared;
        writers.names.insert(PipelineId(id), name);
    }
    Ok(found)
}
