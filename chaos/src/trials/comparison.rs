//! The proof is put to the proof: a difference is planted in a mart that equals its source, or none.

use anyhow::{Context, Result};
use reqwest::Method;
use serde_json::json;

use crate::probes::Violation;
use crate::rng::Rng;
use crate::storm::Storm;

const NAME: &str = "comparison";

/// Each is one that a careless comparison takes for nothing.
const PLANTS: [&str; 10] = [
    "update analytics.comparison set amount = 0 where id = (select min(id) from analytics.comparison where amount is null)",
    "update analytics.comparison set amount = null where id = (select max(id) from analytics.comparison where amount = 0)",
    "update analytics.comparison set weight = 0 where id = (select max(id) from analytics.comparison where weight is null)",
    "update analytics.comparison set weight = 'NaN' where id = 7",
    "update analytics.comparison set weight = '-infinity' where id = 8",
    "update analytics.comparison set seen_at = seen_at + interval '1 microsecond' where id = 9",
    "update analytics.comparison set title = '' where id = (select min(id) from analytics.comparison where title is null)",
    "update analytics.comparison set amount = weight, weight = amount where id = (select min(id) from analytics.comparison where amount = 0 and weight = 1)",
    "delete from analytics.comparison where id = 300",
    "insert into analytics.comparison (id, title) values (0, 'nobody')",
];

pub(super) async fn play(storm: &Storm, rng: &mut Rng) -> Result<Option<Violation>> {
    while storm.different(NAME).await? > 0 {
        storm.run(NAME).await?;
    }
    let plant = if rng.share() < 0.25 { None } else { rng.pick(&PLANTS).copied() };
    storm.execute(plant.unwrap_or("select 1")).await?;
    let differs = storm.different(NAME).await? > 0;
    let level = if rng.share() < 0.5 { "hash" } else { "rows" };
    let Some((id, verdict)) = compare(storm, level).await? else { return Ok(None) };
    let said = format!("{level}: {verdict}, planted: {}", plant.unwrap_or("nothing"));
    match (differs, verdict.as_str()) {
        (true, "differs") if level == "rows" => repair(storm, &id, &said).await,
        (true, "differs") | (false, "equal") => Ok(None),
        (true, _) => Ok(Some(Violation::new("a comparison does not see that a mart differs", NAME, said))),
        (false, _) => Ok(Some(Violation::new("a comparison takes a mart for different", NAME, said))),
    }
}

/// Its id and verdict; nothing where too many runners were killed with it.
async fn compare(storm: &Storm, level: &str) -> Result<Option<(String, String)>> {
    let asked =
        storm.insist(Method::POST, "/pipelines/comparison/reconcile", &json!({"level": level})).await?;
    let id = asked["id"].as_str().context("a reconcile has an id")?.to_owned();
    let (_, ended) = storm.api.end_of(&format!("/reconciles/{id}")).await?;
    Ok(ended["verdict"].as_str().map(|verdict| (id, verdict.to_owned())))
}

async fn repair(storm: &Storm, id: &str, said: &str) -> Result<Option<Violation>> {
    let asked = storm.insist(Method::POST, &format!("/reconciles/{id}/repair"), &json!({})).await?;
    let run = asked["run_id"].as_str().context("a repair is a run")?;
    let (outcome, _) = storm.api.end_of(&format!("/runs/{run}")).await?;
    if !outcome.is_success() || storm.different(NAME).await? == 0 {
        return Ok(None);
    }
    Ok(Some(Violation::new("a repair has left a difference", NAME, said)))
}
