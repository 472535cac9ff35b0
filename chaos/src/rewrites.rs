//! What owners of tables do to them at any time. Nothing of it changes what the tables hold, so whatever a mart loses by it
//! is lost. TRUNCATE and statements that rewrite a table are not MVCC-safe: to an older snapshot the table is empty.

use anyhow::Result;

use crate::rng::Rng;
use crate::storm::Storm;

/// Runners wait behind a statement that waits for its lock: it gives up before that is a fault of its own.
const LOCK_TIMEOUT: &str = "set lock_timeout = '400ms'";
const TRIES: usize = 5;

const REWRITES: [&[&str]; 14] = [
    &[TRUNCATE_FILM],
    &[TRUNCATE_FILM],
    &["begin; create temp table kept on commit drop as table content.role with no data; lock table content.role in access exclusive mode;
       insert into kept table content.role; truncate content.role; insert into content.role overriding system value table kept; commit"],
    &["begin; create temp table kept on commit drop as table content.rating with no data; lock table content.rating in access exclusive mode;
       insert into kept table content.rating; truncate content.rating; insert into content.rating overriding system value table kept; commit"],
    // The change log loads its mart anew after each.
    &["begin; create temp table kept on commit drop as table content.actor with no data; lock table content.actor in access exclusive mode;
       insert into kept table content.actor; truncate content.actor; insert into content.actor overriding system value table kept; commit"],
    &["alter table content.film alter column title type text using title || ''"],
    &["alter table content.rating alter column score type int using score + 0"],
    &["alter table content.actor alter column name type varchar(200)", "alter table content.actor alter column name type text"],
    &["alter table content.shelf add column note text default 'none'", "alter table content.shelf rename column note to remark",
      "alter table content.shelf drop column remark"],
    &["begin; alter table content.rating detach partition content.rating_late;
       alter table content.rating attach partition content.rating_late for values from (200) to (maxvalue); commit"],
    &["vacuum full content.film"],
    &["vacuum full content.shelf"],
    &["vacuum full analytics.film"],
    &["cluster content.role using role_pkey"],
];

const TRUNCATE_FILM: &str =
    "begin; create temp table kept on commit drop as table content.film with no data; lock table content.film in access exclusive mode;
     insert into kept table content.film; truncate content.film; insert into content.film overriding system value table kept; commit";

pub(crate) async fn rewrite(storm: &Storm, rng: &mut Rng) -> Result<()> {
    let session = storm.fixture.session().await?;
    session.client.batch_execute(LOCK_TIMEOUT).await?;
    for statement in rng.pick(&REWRITES).copied().unwrap_or_default() {
        let mut tried = Ok(());
        for _ in 0..TRIES {
            tried = session.client.batch_execute(statement).await;
            if tried.is_ok() || session.client.is_closed() {
                break;
            }
            session.client.batch_execute("rollback").await?;
        }
        tried?;
    }
    Ok(())
}
