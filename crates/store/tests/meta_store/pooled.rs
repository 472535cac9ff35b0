//! A meta-store behind a pooler.

use vitrina_store::{Error, Store, connect_directly, is_of_pooler};
use vitrina_testbed::{Database, Pooler, PoolerPlan};

#[tokio::test]
async fn a_meta_store_behind_a_pooler_is_refused_with_what_to_do() {
    let db = Database::fresh().await;
    for (mode, drops_options) in [("transaction", true), ("transaction", false), ("session", true)] {
        let Some(pooler) = Pooler::before(&db, PoolerPlan { mode, drops_options }).await else { return };
        let error = Store::connect(pooler.url(), "vitrina-test", 4).await.unwrap_err();
        assert!(matches!(error, Error::Pooled { .. }), "{error}");
        assert!(
            error.to_string().contains("hint: give the address of the Postgres server itself"),
            "{error}"
        );
        assert!(!error.is_connection(), "it does not pass by itself");
        assert!(is_of_pooler(&connect_directly(pooler.url()).await.unwrap_err()));
    }
    Store::connect(db.url(), "vitrina-test", 4).await.unwrap().migrate().await.unwrap();
}

/// The address is the same, and a pooler is put behind it later: a name of DNS that leads elsewhere.
#[tokio::test]
async fn sessions_of_a_pool_that_are_opened_later_are_recognised_too() {
    let db = Database::fresh().await;
    let plan = PoolerPlan { mode: "transaction", drops_options: true };
    let Some(pooler) = Pooler::before(&db, plan).await else { return };
    let store = Store::connect(db.url(), "vitrina-test", 1).await.unwrap();
    store.set_login(pooler.url()).unwrap();
    store.ping().await.unwrap_err();
    store.set_login(db.url()).unwrap();
    store.ping().await.unwrap();
}
