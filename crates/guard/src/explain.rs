//! The plan of one statement, and never more of it than there is room for.

use serde_json::Value;
use tokio_postgres::{Client, SimpleQueryMessage};

/// Known to the server by a name, so that one statement is all that fits in, and `$1` needs no value.
pub(crate) const BEFORE: &str = "prepare vitrina_guard as ";

/// Planning writes `repeat('x', 1e9)` out in full, and a plan comes as one value: so the server itself looks at its
/// length first. The largest honest plans have some hundred kilobytes.
const EXPLAIN: &str = "do language plpgsql $$ declare plan text; begin
      execute 'explain (VERBOSEformat json) execute vitrina_guard VALUES' into plan;
      perform set_config('vitrina.plan', case when octet_length(plan) <= 8388608 then plan else '' end, true);
    end $$;
    select current_setting('vitrina.plan')";

/// Nulls for the parameters, in a plan that would serve any of their values: with one of them in hand the planner may
/// leave out half of the query.
const GENERIC: &str = "set local plan_cache_mode = force_generic_plan";

/// In a transaction, which has to be rolled back afterwards, whatever comes of this. `None` where the answer is no plan
/// or a plan without end.
pub(crate) async fn explain(
    client: &Client,
    select: &str,
    parameters: usize,
    verbose: bool,
) -> Result<Option<Value>, tokio_postgres::Error> {
    client.execute(&format!("{BEFORE}{select}"), &[]).await?;
    let nulls = vec!["null"; parameters].join(", ");
    let values = if nulls.is_empty() { nulls } else { format!("({nulls})") };
    let explain =
        EXPLAIN.replace("VERBOSE", if verbose { "verbose, " } else { "" }).replace("VALUES", &values);
    let answer = client.simple_query(&format!("{GENERIC}; {explain}")).await;
    // In a transaction that has failed nothing can be forgotten.
    let end = if answer.is_err() { "rollback; " } else { "" };
    client.batch_execute(&format!("{end}deallocate vitrina_guard")).await?;
    Ok(root(&answer?))
}

fn root(answer: &[SimpleQueryMessage]) -> Option<Value> {
    let text = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    })?;
    // As deep as serde_json goes, which is some sixty joins.
    let mut plans: Value = serde_json::from_str(text).ok()?;
    Some(plans.get_mut(0)?.get_mut("Plan")?.take())
}
