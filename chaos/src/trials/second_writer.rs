//! A pipeline is sent to a mart that another one writes to, past the API: it must not write there.

use anyhow::Result;

use crate::probes::Violation;
use crate::storm::Storm;

const NAME: &str = "second_writer";
const SEND: &str = "update etl.etl_pipelines set target_table = 'analytics.film' where name = 'second_writer' and target_table <> 'analytics.film'";

pub(super) async fn play(storm: &Storm) -> Result<Option<Violation>> {
    storm.execute(SEND).await?;
    if storm.count("select count(*) from analytics.film").await? == 0 {
        // Whoever comes first owns it: the pipeline that fills it.
        storm.run("film").await?;
        return Ok(None);
    }
    let outcome = storm.run(NAME).await?;
    let said = format!("its run ended in {outcome:?}");
    Ok(outcome.is_success().then(|| Violation::new("a second pipeline wrote to a mart", NAME, said)))
}
