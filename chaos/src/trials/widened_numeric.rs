//! A column of the source gets more digits than the mart has: the mart must not round them.

use anyhow::Result;

use crate::probes::Violation;
use crate::storm::Storm;

const NAME: &str = "widened_numeric";
const NARROW: &str = "update content.widened_numeric set amount = round(amount, 2); alter table content.widened_numeric alter column amount type numeric(6, 2)";
const WIDE: &str = "alter table content.widened_numeric alter column amount type numeric; update content.widened_numeric set amount = amount + 0.001 where id % 7 = 0";

pub(super) async fn play(storm: &Storm) -> Result<Option<Violation>> {
    for (sql, said) in [(NARROW, "as wide as its mart"), (WIDE, "wider than its mart")] {
        storm.execute(sql).await?;
        let outcome = storm.run(NAME).await?;
        if outcome.is_success() && storm.different(NAME).await? > 0 {
            return Ok(Some(Violation::new("a mart differs after its run", NAME, said)));
        }
    }
    Ok(None)
}
