//! A load fails in the middle, its source changes, and another load follows: it must not continue the first.

use anyhow::Result;

use crate::probes::Violation;
use crate::rng::Rng;
use crate::storm::Storm;

const NAME: &str = "failed_load";
const CHANGE: &str = "
    delete from content.failed_load where title is null or id in (select id from content.failed_load order by random() limit 200);
    insert into content.failed_load select n, 'New', 0 from generate_series(1, 2000) n where random() < 0.5 on conflict do nothing;
    update content.failed_load set n = n + 1, title = 'Title ' || random() where random() < 0.3";

pub(super) async fn play(storm: &Storm, rng: &mut Rng) -> Result<Option<Violation>> {
    // The mart refuses it, and no reject is allowed: what comes before it is loaded by then.
    let refused = (500.0 + rng.share() * 1000.0).floor();
    storm.execute(&format!("insert into content.failed_load values ({refused}, null, 0) on conflict (id) do update set title = null")).await?;
    storm.run(NAME).await?;
    storm.execute(CHANGE).await?;
    let outcome = storm.run(NAME).await?;
    let differ = storm.different(NAME).await?;
    let said = format!("{differ} rows differ after a load that followed a failed one");
    let found = outcome.is_success() && differ > 0;
    Ok(found.then(|| Violation::new("a mart differs after its run", NAME, said)))
}
