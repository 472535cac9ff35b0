//! A mart is emptied, or another table is put in its place, while nobody runs: the next run leaves it as its source.

use anyhow::Result;

use crate::probes::Violation;
use crate::rng::Rng;
use crate::storm::Storm;

const NAME: &str = "replaced_mart";
const CHANGE: &str = "update content.replaced_mart set title = 'Title ' || random(), modified = clock_timestamp() where random() < 0.1";
const HARMS: [(&str, &str); 3] = [
    ("emptied", "truncate analytics.replaced_mart"),
    (
        "dropped",
        "create table analytics.next (like analytics.replaced_mart including all); drop table analytics.replaced_mart; alter table analytics.next rename to replaced_mart",
    ),
    (
        "replaced by a table with other rows",
        "create table analytics.next (like analytics.replaced_mart including all);
         insert into analytics.next select id + 100, title, modified from analytics.replaced_mart;
         drop table analytics.replaced_mart; alter table analytics.next rename to replaced_mart",
    ),
];

pub(super) async fn play(storm: &Storm, rng: &mut Rng) -> Result<Option<Violation>> {
    if !storm.run(NAME).await?.is_success() {
        return Ok(None);
    }
    let chosen = if rng.share() < 0.5 { 0 } else { 1 + usize::from(rng.share() < 0.5) };
    let (done, sql) = HARMS[chosen];
    storm.execute(&format!("begin; {sql}; commit")).await?;
    storm.execute(CHANGE).await?;
    let outcome = storm.run(NAME).await?;
    let differ = storm.different(NAME).await?;
    let said = format!("{differ} rows differ after a run over a mart that was {done}");
    let found = outcome.is_success() && differ > 0;
    Ok(found.then(|| Violation::new("a mart differs after its run", NAME, said)))
}
