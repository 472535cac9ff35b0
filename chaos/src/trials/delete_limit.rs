//! Most rows of a source are deleted: its mart loses no more than the delete limit allows, however many runs try, until
//! somebody consents.

use anyhow::Result;
use serde_json::json;

use crate::probes::Violation;
use crate::storm::Storm;

const NAME: &str = "delete_limit";
pub(super) const LIMIT: f64 = 0.2;
const ATTEMPTS: usize = 4;
const FILL: &str = "insert into content.delete_limit select n, 'Item ' || n from generate_series(1, 500) n on conflict do nothing";

pub(super) async fn play(storm: &Storm) -> Result<Option<Violation>> {
    storm.change(NAME, &json!({"delete_limit": 1.0})).await?;
    storm.execute(FILL).await?;
    while storm.different(NAME).await? > 0 {
        storm.run(NAME).await?;
    }
    storm.change(NAME, &json!({"delete_limit": LIMIT})).await?;
    storm.execute("delete from content.delete_limit where id % 5 > 1").await?;
    for attempt in 1..=ATTEMPTS {
        let outcome = storm.run(NAME).await?;
        let left = storm.count("select count(*) from analytics.delete_limit").await?;
        let said = format!("{left} of 500 rows are left after attempt {attempt}, which ended in {outcome:?}");
        if left < 400 {
            return Ok(Some(Violation::new("the delete limit was passed", NAME, said)));
        }
        if outcome.is_success() {
            return Ok(Some(Violation::new("a run above its delete limit succeeded", NAME, said)));
        }
    }
    storm.change(NAME, &json!({"delete_limit": 1.0})).await?;
    let outcome = storm.run(NAME).await?;
    if outcome.is_success() && storm.different(NAME).await? > 0 {
        return Ok(Some(Violation::new("a mart differs after its run", NAME, "deletes with consent")));
    }
    Ok(None)
}
