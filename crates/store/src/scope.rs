//! The pipelines that a caller sees: all of them, or those that have one of some tags. A handle on the meta-store has one
//! scope, and whatever it finds by a name, an id or in a list is within it: what is outside is not there.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use uuid::Uuid;
use vitrina_core::{PipelineId, TargetPart};

use crate::configuration::Change;
use crate::pipelines::EFFECTIVE_TARGET;
use crate::{Error, Result, Store};

/// How a pipeline is called that somebody may not know of.
pub const OUTSIDE: &str = "a pipeline outside of the scope of this token";

/// Without a value all pipelines; an empty list of tags is none of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scope(Option<BTreeSet<String>>);

impl Scope {
    pub const EVERYTHING: Self = Self(None);
    pub const NOTHING: Self = Self(Some(BTreeSet::new()));

    /// Pipelines with one of these tags; without any tag none.
    pub fn of(tags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self(Some(tags.into_iter().map(Into::into).collect()))
    }

    pub fn is_everything(&self) -> bool {
        self.0.is_none()
    }

    /// None where it is everything.
    pub fn tags(&self) -> Option<Vec<String>> {
        self.0.as_ref().map(|tags| tags.iter().cloned().collect())
    }

    /// A pipeline with these tags is within.
    pub fn includes(&self, tags: &[String]) -> bool {
        self.0.as_ref().is_none_or(|own| tags.iter().any(|tag| own.contains(tag)))
    }

    /// A pipeline that is saved with these tags is within.
    pub fn check(&self, tags: &[String]) -> Result<()> {
        match self.includes(tags) {
            true => Ok(()),
            false => Err(Error::OutOfScope(self.tags().unwrap_or_default())),
        }
    }
}

/// Whether a row of `etl_pipelines` is within the scope whose tags are this parameter of the statement.
pub(crate) fn within(pipeline: &str, parameter: usize) -> String {
    format!("(${parameter}::text[] is null or {pipeline}.tags && ${parameter})")
}

/// The same of a row that belongs to the pipeline `id`.
pub(crate) fn of_pipeline_within(id: &str, parameter: usize) -> String {
    format!(
        "(${parameter}::text[] is null
          or exists (select from etl.etl_pipelines scoped where scoped.id = {id} and scoped.tags && ${parameter}))"
    )
}

impl Store {
    /// The same meta-store, seen within a scope.
    #[must_use]
    pub fn within(&self, scope: Scope) -> Self {
        Self { scope, ..self.clone() }
    }

    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Those of these pipelines that are within.
    pub async fn seen(&self, pipelines: &[PipelineId]) -> Result<Vec<PipelineId>> {
        let sql = format!("select id from etl.etl_pipelines p where id = any($1) and {}", within("p", 2));
        let ids: Vec<Uuid> = pipelines.iter().map(|pipeline| pipeline.0).collect();
        let seen: Vec<Uuid> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(ids)
            .bind(self.scope.tags())
            .fetch_all(&self.pool)
            .await?;
        Ok(seen.into_iter().map(PipelineId).collect())
    }

    /// Whether only pipelines outside of the scope write to the target: nobody within joins them.
    pub async fn is_of_others(&self, target: &str) -> Result<bool> {
        let mut connection = self.pool.acquire().await?;
        is_of_others(&mut connection, &self.scope, target).await
    }

    /// Whether the target may be described within this scope, as it is written to now.
    pub async fn check_describable(&self, target: &str) -> Result<()> {
        let mut connection = self.pool.acquire().await?;
        check_describable(&mut connection, &self.scope, target, false).await
    }
}

async fn is_within(connection: &mut PgConnection, scope: &Scope, id: PipelineId) -> Result<bool> {
    let sql =
        format!("select exists (select from etl.etl_pipelines p where p.id = $1 and {})", within("p", 2));
    let found = sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).bind(id.0).bind(scope.tags());
    Ok(found.fetch_one(connection).await?)
}

/// A target is described by those who alone write to it.
async fn check_describable(
    connection: &mut PgConnection,
    scope: &Scope,
    target: &str,
    will_write: bool,
) -> Result<()> {
    let (own, others) = writers(connection, scope, target).await?;
    match others == 0 && (own > 0 || will_write) {
        _ if scope.is_everything() => Ok(()),
        true => Ok(()),
        false => Err(Error::TargetOutOfScope(target.to_owned())),
    }
}

/// Who shares a target is decided by those who write to it, or by who sees all of them.
async fn is_of_others(connection: &mut PgConnection, scope: &Scope, target: &str) -> Result<bool> {
    let (own, others) = writers(connection, scope, target).await?;
    Ok(!scope.is_everything() && own == 0 && others > 0)
}

/// How many pipelines write to a target: within a scope, and outside of it.
async fn writers(connection: &mut PgConnection, scope: &Scope, target: &str) -> Result<(i64, i64)> {
    let sql = format!(
        "select count(*) filter (where {within}), count(*) filter (where not {within})
           from etl.etl_pipelines p where {EFFECTIVE_TARGET} = $1",
        within = within("p", 2),
    );
    let counted = sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(target).bind(scope.tags());
    Ok(counted.fetch_one(connection).await?)
}

/// Before anything is changed, with all targets locked: what these changes save is within the scope, and a target is changed
/// only by those who alone write to it. Pipelines that are edited or deleted are looked at under their own locks.
pub(crate) async fn check_changes(tx: &mut PgConnection, changes: &[Change], scope: &Scope) -> Result<()> {
    if scope.is_everything() {
        return Ok(());
    }
    let mut written = BTreeSet::new();
    for change in changes {
        if let Change::CreatePipeline(pipeline) | Change::EditPipeline { after: pipeline, .. } = change {
            scope.check(&pipeline.tags)?;
            if matches!(change, Change::EditPipeline { .. }) && !is_within(tx, scope, pipeline.id).await? {
                return Err(Error::NoSuchPipeline(pipeline.id.to_string()));
            }
            if is_of_others(tx, scope, pipeline.effective_target()).await? {
                let part = TargetPart { target: pipeline.effective_target().to_owned(), shared_value: None };
                return Err(Error::TargetOwned { part, owners: vec![OUTSIDE.to_owned()] });
            }
            written.insert(pipeline.effective_target());
        }
    }
    for change in changes {
        match change {
            Change::PutTarget { target, .. } => {
                let will_write = written.contains(target.name.as_str());
                check_describable(tx, scope, &target.name, will_write).await?;
            }
            Change::DeleteTarget { name, .. } => match writers(tx, scope, name).await? {
                (0, _) => return Err(Error::NoSuchTarget(name.clone())),
                (_, 0) => {}
                _ => return Err(Error::TargetOutOfScope(name.clone())),
            },
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(tags: &[&str]) -> Vec<String> {
        tags.iter().map(|tag| (*tag).to_owned()).collect()
    }

    #[test]
    fn a_scope_without_tags_includes_nothing_and_no_scope_includes_everything() {
        assert!(Scope::EVERYTHING.includes(&[]) && Scope::EVERYTHING.includes(&tags(&["films"])));
        assert!(!Scope::NOTHING.includes(&[]) && !Scope::NOTHING.includes(&tags(&["films"])));
        assert_eq!(Scope::of(Vec::<String>::new()), Scope::NOTHING);
        let films = Scope::of(["films", "search"]);
        assert!(films.includes(&tags(&["other", "search"])));
        assert!(!films.includes(&tags(&["Films", "film", "search "])) && !films.includes(&[]));
    }
}
