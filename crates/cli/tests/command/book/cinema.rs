//! What pages take to be there: the sample cinema, with an API and a runner.

use sqlx::{Connection, PgConnection};
use url::Url;
use vitrina_testbed::Database;

use super::reader::Reader;
use super::{TOKEN, repository};
use crate::{Running, vitrina};

/// Connections are called as their database is, and pages name them: such a database has a server of its own.
pub(super) struct Named {
    server: Database,
    name: &'static str,
}

impl Named {
    pub(super) async fn create(name: &'static str) -> Self {
        let server = Database::on_a_server_of_its_own().await;
        server.execute(&format!("create database {name}")).await;
        Self { server, name }
    }

    /// With the sample's tables and rows, and the meta-store beside them.
    pub(super) async fn cinema() -> Self {
        let database = Self::create("cinema").await;
        for step in [&["migrate"][..], &["demo", "migrate"], &["demo", "seed", "--films", "50"]] {
            vitrina(step).variable("VITRINA_DATABASE_URL", database.url()).ends(0);
        }
        database
    }

    /// An empty database of the same server.
    pub(super) async fn beside(&self, name: &str) -> String {
        self.server.execute(&format!("create database {name}")).await;
        self.server.server_url(name)
    }

    pub(super) fn url(&self) -> String {
        self.server.server_url(self.name)
    }

    pub(super) fn url_as(&self, user: &str, password: &str) -> String {
        let mut url = Url::parse(&self.url()).unwrap();
        url.set_username(user).unwrap();
        url.set_password(Some(password)).unwrap();
        url.into()
    }
}

/// The sample cinema, an API that is open to nobody without the token, and a runner.
pub(super) struct Cinema {
    database: Named,
    _up: Running,
    address: String,
}

impl Cinema {
    pub(super) async fn start() -> Self {
        let database = Named::cinema().await;
        let up = vitrina(&["up", "--listen", "127.0.0.1:0"]).variable("VITRINA_DATABASE_URL", database.url());
        let up = up.variable("VITRINA_CONNECTIONS_CINEMA_URL", database.url());
        let mut up = up.variable("VITRINA_ADMIN_TOKEN", TOKEN).start();
        let address = up.is_up();
        Self { database, _up: up, address }
    }

    /// And has a pipeline that follows changes, as pages speak of them.
    pub(super) async fn refuses_a_row(&self) {
        let spoiled = "alter table analytics.film_dim add constraint title check (title <> 'Spoiled');
                       update content.film_work set title = 'Spoiled' where id = (select min(id::text)::uuid from content.film_work)";
        let mut session = PgConnection::connect(&self.database.url()).await.unwrap();
        sqlx::raw_sql(spoiled).execute(&mut session).await.unwrap();
        let ask = |arguments: &[&str]| {
            let api = format!("http://{}", self.address);
            vitrina(arguments).variable("VITRINA_API_URL", api).variable("VITRINA_API_TOKEN", TOKEN)
        };
        ask(&["run", "film_dim_full", "--watch"]).ends(1);
        let follows = repository().join("examples/cinema/pipelines/film_dim_incremental.yaml");
        let follows = std::fs::read_to_string(follows)
            .unwrap()
            .replace("schedule_interval", "# schedule_interval")
            .replace("full_schedule:", "# full_schedule:");
        ask(&["apply", "follows.yaml", "--yes"]).file("follows.yaml", &follows).ends(0);
    }

    pub(super) fn reader(&self) -> Reader {
        let mut reader = Reader::at(&self.address);
        let (api, url) = (format!("http://{}", self.address), self.database.url());
        reader.variables = vec![
            ("VITRINA_API_URL", api.clone()),
            ("API", api),
            ("JOB", "nightly-7".to_owned()),
            ("VITRINA_DATABASE_URL", url.clone()),
            ("VITRINA_CONNECTIONS_CINEMA_URL", url.clone()),
            ("CINEMA_URL", url.clone()),
            ("MARTS_URL", url),
        ];
        reader
    }
}
