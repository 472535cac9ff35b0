//! A load fails in the middle, its source changes, and another load follows: it must not continue the first.

use anyhow::Result;

use crate::dice::Dice;
use crate::probes::Violation;
use crate::storm::Storm;

const NAME: &str = "stack";
const CHANGE: &str = "
    delete from content.stack where title is null or id in (select id from content.stack order by random() limit 200);
    insert into content.stack select n, 'New', 0 from generate_series(1, 2000) n where random() < 0.5 on conflict do nothing;
    update content.stack set n = n + 1, title = 'Title ' || random() where random() < 0.3";

pub(super) async fn play(storm: &Storm, dice: &mut Dice) -> Result<Option<Violation>> {
    // The mart refuses it, and no reject is allowed: what comes before it is loaded by then.
    let refused = (500.0 + dice.share() * 1000.0).floor();
    storm.execute(&format!("insert into content.stack values ({refused}, null, 0) on conflict (id) do update set title = null")).await?;
    storm.run(NAME).await?;
    storm.execute(CHANGE).await?;
    let outcome = storm.run(NAME).await?;
    let differ = storm.different(NAME).await?;
    let said = format!("{differ} rows differ after a load that followed a failed one");
    let found = outcome.is_success() && differ > 0;
    Ok(found.then(|| Violation::new("a mart differs after its run", NAME, said)))
}
