//! A column gets a type of the same width in the middle of a load: its bytes must not be taken for the old one's.

use anyhow::Result;

use crate::probes::Violation;
use crate::storm::Storm;

const NAME: &str = "retyped_column";
const NUMBERS: &str = "alter table content.retyped_column alter column n type bigint using n::bigint";
const FROM_TIMES: &str =
    "alter table content.retyped_column alter column n type bigint using extract(epoch from n)::bigint";
const TO_TIMES: &str = "set lock_timeout = '1s'; alter table content.retyped_column alter column n type timestamptz using to_timestamp(n)";
const IS_TIME: &str = "select count(*) from pg_attribute where attrelid = 'content.retyped_column'::regclass and attname = 'n' and atttypid = 'timestamptz'::regtype";

pub(super) async fn play(storm: &Storm) -> Result<Option<Violation>> {
    if storm.count(IS_TIME).await? > 0 {
        storm.execute(FROM_TIMES).await?;
    }
    storm.execute("update content.retyped_column set n = n + 1").await?;
    let run = storm.request(NAME).await;
    storm.execute(TO_TIMES).await.ok();
    let (outcome, _) = storm.api.end_of(&format!("/runs/{run}")).await?;
    storm.execute(if storm.count(IS_TIME).await? > 0 { FROM_TIMES } else { NUMBERS }).await?;
    let differ = storm.different(NAME).await?;
    let said = format!("{differ} rows differ after a load in which a column got another type");
    if outcome.is_success() && differ > 0 {
        return Ok(Some(Violation::new("a mart differs after its run", NAME, said)));
    }
    let outcome = storm.run(NAME).await?;
    let found = outcome.is_success() && storm.different(NAME).await? > 0;
    Ok(found
        .then(|| Violation::new("a mart differs after its run", NAME, "a load after the type was put back")))
}
