//! A test's database is its own, goes with its success and stays with its failure.

use tokio::task::JoinSet;
use vitrina_testbed::Database;

async fn exists(name: &str, seen_from: &Database) -> bool {
    seen_from.value(&format!("select exists (select from pg_database where datname = '{name}')")).await
}

#[tokio::test]
async fn every_database_is_new_and_named_after_its_test() {
    let (one, other) = (Database::fresh().await, Database::fresh().await);
    assert!(one.name().starts_with("t_every_database_is_new_and_named_after_its_test_"));
    one.execute("create table film (id int); insert into film values (1), (2)").await;
    assert_eq!(one.value::<i64>("select count(*) from film").await, 2);
    assert_eq!(other.value::<Option<String>>("select to_regclass('film')::text").await, None);
}

#[tokio::test]
async fn clients_are_sessions_of_their_own() {
    let database = Database::fresh().await;
    let (one, other) = (database.client().await, database.client().await);
    one.batch_execute("set application_name = 'one'").await.unwrap();
    let name: String = other.query_one("show application_name", &[]).await.unwrap().get(0);
    assert_eq!(name, "");
}

#[tokio::test]
async fn rows_come_as_the_texts_of_postgres() {
    let database = Database::fresh().await;
    let rows = database.texts("select 1.50, null union all select 2, 'да'").await;
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(rows, [[text("1.50"), None], [text("2"), text("да")]]);
}

#[tokio::test]
async fn another_role_gets_a_url_whatever_its_name_and_password_hold() {
    let database = Database::fresh().await;
    let role = format!("{}@ %", &database.name()[database.name().len() - 8..]);
    database.execute(&format!(r#"create role "{role}" login password 'p:/?#%40@'"#)).await;
    let (client, connection) =
        tokio_postgres::connect(&database.url_as(&role, "p:/?#%40@"), tokio_postgres::NoTls).await.unwrap();
    let asked =
        async move { client.query_one("select current_user::text, current_database()::text", &[]).await };
    let row = tokio::join!(asked, connection).0.unwrap();
    assert_eq!((row.get(0), row.get(1)), (role.as_str(), database.name()));
    database.execute(&format!(r#"drop role "{role}""#)).await;
}

#[tokio::test]
async fn a_database_goes_when_its_test_is_over_even_with_sessions_open() {
    let onlooker = Database::fresh().await;
    let database = Database::fresh().await;
    let _session = database.client().await;
    let name = database.name().to_owned();
    drop(database);
    assert!(!exists(&name, &onlooker).await);
}

#[tokio::test]
async fn a_database_stays_when_its_test_panics() {
    let onlooker = Database::fresh().await;
    let database = Database::fresh().await;
    let name = database.name().to_owned();
    let mut tests = JoinSet::new();
    tests.spawn(async move {
        let _database = database;
        panic!("as a failed assertion does");
    });
    assert!(tests.join_next().await.unwrap().is_err());
    assert!(exists(&name, &onlooker).await);
    onlooker.execute(&format!("drop database {name} with (force)")).await;
}
