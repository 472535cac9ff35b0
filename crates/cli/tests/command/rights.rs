//! Logins that may too little: told before a run, with the statements that mend it.

use vitrina_testbed::Database;

use super::{Running, Vitrina, vitrina};

/// A service's table, a meta-store, and a login that may read and commit, and nothing else.
struct Office {
    db: Database,
    login: String,
    api: String,
    _up: Running,
}

const FILMS: &str = "
targets: [{name: analytics.film, key: [id], create_if_missing: true}]
pipelines:
  - name: films
    source_connection: cinema
    target_table: analytics.film
    source_query: select id, title from content.film
";

impl Office {
    async fn open() -> Self {
        let db = Database::fresh().await;
        let login = format!("clerk_{}", &db.name()[db.name().len() - 8..]);
        let tables = "create schema content; create table content.film (id int primary key, title text);
                      insert into content.film values (1, 'Solo')";
        db.execute(tables).await;
        vitrina(&["migrate"]).variable("VITRINA_DATABASE_URL", db.url()).ends(0);
        let rights = format!(
            "create role {login} login password 'pass-word'; create schema vitrina authorization {login};
             grant usage on schema etl, content to {login};
             grant select, insert, update, delete on all tables in schema etl to {login};
             grant usage, select on all sequences in schema etl to {login}; grant execute on all functions in schema etl to {login}"
        );
        db.execute(&rights).await;
        let url = db.url_as(&login, "pass-word");
        let up = vitrina(&["up", "--listen", "127.0.0.1:0"]).variable("VITRINA_DATABASE_URL", &url);
        let mut up = up.variable("VITRINA_CONNECTIONS_CINEMA_URL", &url).start();
        Self { api: format!("http://{}", up.is_up()), _up: up, login, db }
    }

    fn ask(&self, arguments: &[&str]) -> Vitrina {
        vitrina(arguments).variable("VITRINA_API_URL", &self.api).file("films.yaml", FILMS)
    }

    /// What it says is lacking, which is then granted by the database's owner, word for word.
    async fn is_told_and_granted(&self, grants: &[&str]) {
        let said = self.ask(&["validate", "films.yaml"]).ends(2);
        let grants: Vec<String> = grants.iter().map(|grant| grant.replace("LOGIN", &self.login)).collect();
        assert!(said.contains(&format!("let an owner execute: {}\n", grants.join("; "))), "{said}");
        self.db.execute(&grants.join("; ")).await;
    }
}

/// It would show what its owner may read.
#[tokio::test]
async fn no_grant_is_proposed_on_a_view_that_reads_other_schemas() {
    let office = Office::open().await;
    office.db.execute("create schema secret; create table secret.users (mail text); create view content.leak as select mail from secret.users;
                       create view content.plain as select id from content.film").await;
    let url = office.db.url_as(&office.login, "pass-word");
    let doctor = vitrina(&["doctor"])
        .variable("VITRINA_DATABASE_URL", &url)
        .variable("VITRINA_CONNECTIONS_CINEMA_URL", &url)
        .output();
    let tested = office.ask(&["conn", "test", "cinema"]).output();
    for said in [super::text(&doctor.stdout), super::text(&tested.stdout) + &super::text(&tested.stderr)] {
        assert!(said.contains("content.plain") && !said.contains("leak"), "{said}");
    }
}

#[tokio::test]
async fn what_a_login_lacks_is_told_as_the_grants_that_mend_it() {
    let office = Office::open().await;
    office.is_told_and_granted(&["grant select on table content.film to LOGIN"]).await;

    let database = office.db.name().to_owned();
    office.is_told_and_granted(&[&format!("grant create on database {database} to LOGIN")]).await;
    let said = office.ask(&["validate", "films.yaml"]).ends(0);
    assert!(said.contains("analytics.film does not exist: its first run creates it"), "{said}");

    let (db, login) = (&office.db, &office.login);
    db.execute(&format!("revoke create on database {database} from {login}; create schema analytics")).await;
    office.is_told_and_granted(&["grant usage, create on schema analytics to LOGIN"]).await;
    office.ask(&["validate", "films.yaml"]).ends(0);

    db.execute(&format!("create table analytics.film (id int primary key, title text); revoke all on schema analytics from {login}")).await;
    let write = "grant select, insert, update, delete on table analytics.film to LOGIN";
    office.is_told_and_granted(&["grant usage on schema analytics to LOGIN", write]).await;
    db.execute(&format!("revoke delete on analytics.film from {login}")).await;
    office.is_told_and_granted(&["grant delete on table analytics.film to LOGIN"]).await;

    office.ask(&["validate", "films.yaml"]).ends(0);
    office.ask(&["apply", "films.yaml", "--yes"]).ends(0);
    office.ask(&["run", "films", "--watch", "--timeout", "60s"]).ends(0);
    assert_eq!(db.value::<String>("select title from analytics.film").await, "Solo");
}
