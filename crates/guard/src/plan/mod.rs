//! The second layer: what a query reaches, by the source's own catalogue and planner, under the reader's login.
//!
//! The first layer has read the text and vouches for the names in it. This one looks behind those names: through views,
//! and at functions that no name in the text betrays (attributes, operators, casts). It needs the first one: to plan a
//! query evaluates its immutable functions on constants, so that a call the text should not hold could already run.
//! Should one run all the same, then in a read-only transaction under a timeout, with the rights of the reader.
//!
//! Three witnesses, since each is blind somewhere. The catalogue knows every object of users that a view depends on, as
//! without that DROP could not be safe, implicit casts and pruned branches included; of built-in objects it keeps no
//! record. The definition of a view tells its built-in functions. The plan shows what the text of the query itself
//! hides (attributes that are calls), the tables of the system, parts of tables, and locks; not LIMIT and VALUES.

mod calls;
mod catalogue;
mod explained;
mod references;

use tokio_postgres::Client;

use crate::describe::LIMITS;
use crate::explain::explain;
use crate::refusal::Sent;
use crate::{DescribeError, Finding, SESSION, wrap};
use catalogue::Catalogue;
use explained::Explained;
pub(crate) use references::References;

const SELECT: &str = "select * from ";
/// The planner takes questions to the catalogue for large ones, and would compile them for half a second.
const SOON: &str = "set local jit = off";
const BEFORE: &str = "prepare vitrina_guard as select * from ";

/// All that is wrong with what a query reaches; empty means nothing is. For SQL that `check` or `check_watch` found
/// clean. `Err` is the source's trouble, not the query's. The client must not be in a transaction.
pub async fn check_plan(
    client: &Client,
    sql: &str,
    allowed_schemas: &[String],
    cost_ceiling: Option<f64>,
) -> Result<Vec<Finding>, vitrina_core::Error> {
    let look = Look { client, sql, allowed_schemas, cost_ceiling };
    match look.findings().await {
        Ok(findings) | Err(DescribeError::Sql(findings)) => Ok(findings),
        Err(DescribeError::Source(error)) => Err(error),
    }
}

struct Look<'a> {
    client: &'a Client,
    sql: &'a str,
    allowed_schemas: &'a [String],
    cost_ceiling: Option<f64>,
}

impl Look<'_> {
    async fn findings(&self) -> Result<Vec<Finding>, DescribeError> {
        let Some(references) = References::of(self.sql) else {
            return Ok(vec![Finding::at(self.sql, 0, "sql.unchecked", "the SQL could not be checked")]);
        };
        let begin = format!("begin read only; {SESSION}; {LIMITS}; {SOON}");
        self.run(&begin).await?;
        let judged = self.judge(&references).await;
        self.run("rollback").await?;
        judged
    }

    async fn judge(&self, references: &References) -> Result<Vec<Finding>, DescribeError> {
        let catalogue = Catalogue::ask(self.client, references, self.allowed_schemas).await;
        let catalogue = catalogue.map_err(|error| self.sent().refused(error))?;
        let mut findings = catalogue.findings(self.sql, references);
        // What the catalogue refuses is not even planned.
        if findings.is_empty() {
            let explained = self.explain(references).await?;
            let strangers = explained.relations_outside(self.allowed_schemas);
            let strangers = catalogue::no_parts(self.client, &strangers, self.allowed_schemas).await;
            let strangers = strangers.map_err(|error| self.sent().refused(error))?;
            let at = catalogue.first_view(references);
            findings = explained.findings(&strangers, &catalogue, self.cost_ceiling);
            findings = findings.into_iter().map(|finding| finding.moved(self.sql, at)).collect();
        }
        Ok(findings)
    }

    async fn explain(&self, references: &References) -> Result<Explained, DescribeError> {
        let select = format!("{SELECT}{}", wrap(self.sql));
        match explain(self.client, &select, references.parameters, true).await {
            Ok(plan) => Ok(Explained::read(plan.as_ref())),
            Err(error) => {
                // Nothing else is answered in a transaction that has failed.
                self.run("rollback").await?;
                Err(self.sent().refused_or_lacking(error).await)
            }
        }
    }

    async fn run(&self, sql: &str) -> Result<(), vitrina_core::Error> {
        self.client.batch_execute(sql).await.map_err(|error| self.sent().unanswered(error))
    }

    fn sent(&self) -> Sent<'_> {
        Sent { client: self.client, sql: self.sql, before: BEFORE, doing: "plan" }
    }
}
