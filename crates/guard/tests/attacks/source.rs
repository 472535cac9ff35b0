//! A source to attack, with everything in it that an attack could use, and a look at whether it has been harmed.

use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};
use vitrina_guard::{FromPublic, ReaderLogin, reader_grants, reader_settings};
use vitrina_testbed::Database;

/// Stands in every row that nobody may see.
pub(crate) const SECRET: &str = "s3cret@example.com";

pub(crate) fn schemas() -> Vec<String> {
    vec!["content".to_owned(), "ugc".to_owned()]
}

const OBJECTS: &str = "
    create schema content; create schema ugc; create schema auth; create schema etl; create schema parts;
    create table content.film_work (id int primary key, title text, rating numeric(3, 1), created timestamptz default now());
    insert into content.film_work select n, 'Film ' || n, n % 100 / 10.0 from generate_series(1, 100) n;
    create table ugc.likes (film_id int, user_id int, value int);
    insert into ugc.likes select n, n, 1 from generate_series(1, 100) n;
    create table auth.users (id int primary key, email text);
    insert into auth.users values (1, 's3cret@example.com');
    create table etl.etl_pipelines (id int, config text);
    insert into etl.etl_pipelines values (1, 's3cret@example.com');
    create table content.private (id int, note text);
    insert into content.private values (1, 's3cret@example.com');
    create sequence content.visits;
    create materialized view content.top as select id, title from content.film_work where rating > 9;
    create view content.people as select id, email from auth.users;
    create view content.peoples_likes as select l.film_id, p.email from ugc.likes l join content.people p on p.id = l.user_id;
    create view content.unused as select id from content.film_work where false union all select id from auth.users where false;
    create view content.configs as select config from etl.etl_pipelines;
    create view content.logins as select rolname, rolpassword from pg_authid;
    create view content.settings as select name, setting from pg_settings;
    create view content.slow as select id, pg_sleep(10)::text as slept from content.film_work;
    create view content.limited as select id from content.film_work limit length(pg_sleep(10)::text);
    create view content.locked as select id from content.film_work for update;
    create view content.counted as select nextval('content.visits') as visit from content.film_work;
    create function content.mail() returns text language sql security definer as 'select email from auth.users limit 1';
    create function content.empty(int) returns int language plpgsql security definer
      as 'begin delete from content.film_work; return 1; end';
    create function content.mail_of(content.film_work) returns text language sql security definer as 'select content.mail()';
    create view content.mailed as select id, content.mail() from content.film_work;
    create operator content.### (function = content.empty, rightarg = int);
    create view content.operated as select operator(content.###) id as x from content.film_work;
    create type content.card as (number int);
    create function content.exposed(content.card) returns text language sql security definer as 'select content.mail()';
    create cast (content.card as text) with function content.exposed(content.card) as implicit;
    create table content.wallet (id int, card content.card);
    insert into content.wallet values (1, row(1));
    create domain content.emptied as int check (content.empty(value) > 0);
    create type content.trap as enum ('a')";

/// Objects of extensions that an installation may lack.
const EXTENSIONS: [&str; 2] = ["dblink", "tablefunc"];

pub(crate) struct Source {
    database: Database,
    reader: String,
    owner: String,
    bystander: Client,
    before: Vec<Vec<Option<String>>>,
    drivers: std::sync::Mutex<JoinSet<()>>,
}

impl Source {
    pub(crate) async fn fresh() -> Self {
        Self::with(FromPublic::Nothing).await
    }

    /// Where PUBLIC has lost its dangerous functions.
    pub(crate) async fn strict() -> Self {
        Self::with(FromPublic::Functions).await
    }

    async fn with(from_public: FromPublic) -> Self {
        let database = Database::fresh().await;
        database.execute(OBJECTS).await;
        for extension in EXTENSIONS {
            let sql =
                format!("select exists (select from pg_available_extensions where name = '{extension}')");
            match database.value::<bool>(&sql).await {
                true => database.execute(&format!("create extension {extension}")).await,
                false => eprintln!("extension {extension} is not installed: it is not attacked"),
            }
        }
        let (reader, owner) = (format!("r_{}", database.name()), format!("o_{}", database.name()));
        for role in [&reader, &owner] {
            database.execute(&format!("create role \"{role}\" login password 'x'")).await;
        }
        let schemas = schemas();
        let login = ReaderLogin { role: &reader, schemas: &schemas, from_public };
        for _twice in 0..2 {
            for grant in reader_settings(&reader, 50).into_iter().chain(reader_grants(&login)) {
                database.execute(&grant.sql).await;
            }
        }
        database
            .execute(&format!("revoke select on content.private from \"{reader}\"; {}", owned(&owner)))
            .await;
        let bystander = database.client().await;
        bystander.batch_execute("listen gossip").await.expect("it may listen");
        bystander.batch_execute("set application_name = 'bystander'").await.expect("it may have a name");
        let mut source = Self {
            database,
            reader,
            owner,
            bystander,
            before: Vec::new(),
            drivers: std::sync::Mutex::default(),
        };
        source.before = source.state().await;
        source
    }

    /// A session of the login that reads, set up by nothing but its role.
    pub(crate) async fn reader(&self) -> Client {
        self.login(&self.reader).await
    }

    /// A session of a login that owns all tables.
    pub(crate) async fn owner(&self) -> Client {
        self.login(&self.owner).await
    }

    async fn login(&self, role: &str) -> Client {
        let connected = tokio_postgres::connect(&self.database.url_as(role, "x"), NoTls).await;
        let (client, driver) = connected.expect("the role may log in");
        self.drivers.lock().expect("no holder panics").spawn(async move { drop(driver.await) });
        client
    }

    /// As its administrator, outside of any layer.
    pub(crate) async fn execute(&self, sql: &str) {
        self.bystander.batch_execute(sql).await.expect("the administrator may");
    }

    pub(crate) async fn is_unharmed(&self) -> bool {
        self.state().await == self.before
    }

    /// Every row of every table, every object, every sequence and every setting of the source.
    async fn state(&self) -> Vec<Vec<Option<String>>> {
        let rows = "select table_schema, table_name, md5(query_to_xml(format('table %I.%I', table_schema, table_name), true, true, '')::text)
                      from information_schema.tables where table_schema in ('content', 'ugc', 'auth', 'etl') and table_type = 'BASE TABLE'";
        let objects = "select 'object', oid::text, md5(c::text) from (select oid, relname, relkind, relowner, relacl from pg_class where relnamespace::regnamespace::text not like 'pg_%') c
                       union all select 'function', oid::text, md5(p::text) from (select oid, proname, prosrc, proacl from pg_proc) p
                       union all select 'large object', oid::text, '' from pg_largeobject_metadata
                       union all select 'lock', locktype, count(*)::text from pg_locks where locktype = 'advisory'
                         and database = (select oid from pg_database where datname = current_database()) group by 2
                       union all select 'bystander', count(*)::text, '' from pg_stat_activity where application_name = 'bystander' and datname = current_database()
                       union all select 'role', rolname, md5(r::text) from (select rolname, rolsuper, rolconfig from pg_roles where rolname like '%' || current_database()) r";
        let visits = "select 'visits', last_value::text, is_called::text from content.visits";
        self.database
            .texts(&format!("select * from ({rows} union all {objects} union all {visits}) s order by 1, 2"))
            .await
    }
}

/// Hands every table over, so that grants protect nothing from this role. Views stay with the superuser.
fn owned(role: &str) -> String {
    let tables = [
        "content.film_work",
        "ugc.likes",
        "auth.users",
        "etl.etl_pipelines",
        "content.wallet",
        "content.private",
    ];
    let mut sql = format!(
        "grant usage, create on schema content, ugc, auth, etl to \"{role}\"; grant select on all tables in schema content to \"{role}\";"
    );
    for table in tables {
        sql += &format!("alter table {table} owner to \"{role}\";");
    }
    sql
}
