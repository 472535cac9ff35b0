//! The README's path on a database of one's own: foreign names, and an owner who is no superuser.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use url::Url;
use vitrina_testbed::Database;

use super::{Vitrina, forget_settings, text, vitrina};

const TABLES: &str = r#"
    create schema "Web Shop"; create schema "sales-2024"; create schema "order";
    create table "Web Shop"."Order" (id int primary key, "sum total" numeric(10, 2), "updatedAt" timestamptz not null default now());
    create index on "Web Shop"."Order" ("updatedAt", id);
    create table "sales-2024".line (id int primary key, what text);
    create table "order"."select" (id int primary key, "from" text);
    insert into "Web Shop"."Order" select n, n * 1.5 from generate_series(1, 50) n;
    insert into "sales-2024".line select n, 'thing ' || n from generate_series(1, 20) n;
    insert into "order"."select" values (1, 'here')"#;
const SCHEMAS: &str = "Web Shop,sales-2024,order";

/// A server with a database that a role with nothing but CREATEROLE owns.
struct Shop {
    db: Database,
    directory: TempDir,
}

impl Shop {
    async fn open() -> Self {
        let db = Database::on_a_server_of_its_own().await;
        db.execute("create role \"Shop-Owner\" login createrole password 'of-the-owner'").await;
        db.execute("create role stranger login password 'of-a-stranger'").await;
        db.execute("create database \"My Shop\" owner \"Shop-Owner\"").await;
        let shop = Self { db, directory: tempfile::tempdir().unwrap() };
        shop.writes("vitrina.password", "of-vitrina");
        shop.writes("reader.password", "of-the-reader");
        shop.psql(&shop.owner(), TABLES);
        shop
    }

    fn url(&self, user: &str, password: &str) -> String {
        let mut url = Url::parse(&self.db.url_as(user, password)).unwrap();
        url.set_path("/My%20Shop");
        url.to_string()
    }

    fn owner(&self) -> String {
        self.url("Shop-Owner", "of-the-owner")
    }

    fn superuser(&self) -> String {
        let mut url = Url::parse(self.db.url()).unwrap();
        url.set_path("/My%20Shop");
        url.to_string()
    }

    fn writes(&self, name: &str, text: &str) {
        std::fs::write(self.directory.path().join(name), text).unwrap();
    }

    /// Types lines where the passwords are, with the binary in its path.
    fn shell(&self, lines: &str) -> Output {
        let binary = assert_cmd::cargo::cargo_bin!("vitrina");
        let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        forget_settings(&mut shell);
        shell.args(["-c", lines]).current_dir(self.directory.path()).env("PATH", path).output().unwrap()
    }

    /// What it answers, without headers.
    fn psql(&self, url: &str, sql: &str) -> String {
        let mut psql = Command::new("psql");
        let output = psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", url, "-c", sql]).output().unwrap();
        assert!(output.status.success(), "{sql}: {}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    }

    /// `roles.sql` as psql reads it by the README's lines.
    fn applies_roles(&self, url: &str, arguments: &str) -> Output {
        self.shell(&format!(
            "vitrina roles {arguments} > roles.sql || exit 2\npsql -X -v ON_ERROR_STOP=1 '{url}' <<'SQL'\n\
             \\set vitrina_password `cat vitrina.password`\n\\set vitrina_reader_password `cat reader.password`\n\\i roles.sql\nSQL\n"
        ))
    }

    fn vitrina(&self, arguments: &[&str]) -> Vitrina {
        let command = vitrina(arguments).within(self.directory.path());
        command
            .variable("VITRINA_DATABASE_URL", self.url("vitrina", "of-vitrina"))
            .variable("VITRINA_CONNECTIONS_SHOP_URL", self.url("vitrina_reader", "of-the-reader"))
            .variable("VITRINA_CONNECTIONS_SHOP_ALLOWED_SCHEMAS", SCHEMAS)
            .variable("VITRINA_ALLOWED_TARGETS", "reports.*,es:*")
    }

    fn is_prepared(&self) {
        vitrina(&["migrate"]).variable("VITRINA_DATABASE_URL", self.owner()).ends(0);
        let done = self.applies_roles(&self.owner(), &format!("--schemas '{SCHEMAS}' --marts reports"));
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    }

    /// A check of doctor that says this, with its verdict and what to do.
    fn doctor(&self, says: &str) -> (String, String) {
        let output = self.vitrina(&["doctor", "-o", "json"]).output();
        let checks: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
        let found =
            checks.as_array().unwrap().iter().find(|check| check["detail"].as_str().unwrap().contains(says));
        let found = found.unwrap_or_else(|| panic!("{says:?} is not in {checks:#}"));
        let word = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
        (word("verdict"), word("hint"))
    }

    /// What doctor says is lacking, executed word for word by the owner.
    fn is_told_and_mended(&self, says: &str, verdict: &str) {
        let (found, hint) = self.doctor(says);
        assert_eq!(found, verdict, "{says}: {hint}");
        let statement = hint.split_once("execute: ").unwrap_or_else(|| panic!("{hint}")).1;
        self.psql(&self.owner(), statement);
    }
}

/// The page's own lines up to the services, with this shop's names in place of the cinema's.
fn lines_of_the_readme(shop: &Shop) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let page = std::fs::read_to_string(page).unwrap();
    let section = page.split_once("## Use it on your own databases").unwrap().1;
    let block = section.split("```").nth(1).unwrap().split_once('\n').unwrap().1;
    let lines =
        block.lines().filter(|line| !line.starts_with("vitrina up") && !line.contains("ELASTICSEARCH_URL"));
    let text = lines.collect::<Vec<_>>().join("\n");
    let instead = [
        ("postgres://owner:…@db/cinema", format!("'{}'", shop.owner())),
        ("postgres://vitrina:…@db/cinema", format!("'{}'", shop.url("vitrina", "of-vitrina"))),
        (
            "postgres://vitrina_reader:…@db/cinema",
            format!("'{}'", shop.url("vitrina_reader", "of-the-reader")),
        ),
        ("content,ugc", format!("'{SCHEMAS}'")),
        ("analytics", "reports".to_owned()),
        ("CINEMA", "SHOP".to_owned()),
    ];
    instead.iter().fold(format!("set -e\n{text}"), |text, (old, new)| {
        assert!(text.contains(old), "{old} is not on the page");
        text.replace(old, new)
    })
}

#[tokio::test]
async fn the_readme_leads_from_a_foreign_database_to_marts_that_are_proved_equal_without_a_superuser() {
    let shop = Shop::open().await;
    let done = shop.shell(&lines_of_the_readme(&shop));
    let said = text(&done.stdout);
    assert!(done.status.success() && !said.contains("FAIL"), "{said}{}", text(&done.stderr));
    assert!(said.contains("its login may read 3 tables of Web Shop, order, sales-2024"), "{said}");
    assert!(said.contains("they can be written and created in schema reports"), "{said}");

    let (reader, login) = (shop.url("vitrina_reader", "of-the-reader"), shop.url("vitrina", "of-vitrina"));
    let init = ["init", "--from", &reader, "--to", &login, "--marts", "reports", "--dir", "etl"];
    let written = vitrina(&init).within(shop.directory.path()).ends(0);
    assert!(written.contains("Web Shop.Order -> reports.order, incremental"), "{written}");
    let project = shop.directory.path().join("etl");
    let configured = |arguments: &[&str]| {
        let command = vitrina(arguments).within(&project).variable("MARTS_PASSWORD", "of-vitrina");
        command.variable("MY_SHOP_PASSWORD", "of-the-reader")
    };
    let mut up = configured(&["up", "--listen", "127.0.0.1:0"]).start();
    let api = format!("http://{}", up.is_up());
    let ask = |arguments: &[&str]| configured(arguments).variable("VITRINA_API_URL", &api);
    ask(&["validate", "pipelines"]).ends(0);
    ask(&["apply", "pipelines", "--yes"]).ends(0);
    for (pipeline, rows) in [("order", 50), ("line", 20), ("select", 1)] {
        let run = ask(&["run", pipeline, "--watch", "--timeout", "60s"]).ends(0);
        assert!(run.contains(&format!("{rows} rows read")), "{run}");
        assert!(ask(&["reconcile", pipeline]).ends(0).contains("is equal to its source"));
    }
    assert_eq!(shop.psql(&login, "select sum(\"sum total\") from reports.\"order\""), "1912.50");
}

#[tokio::test]
async fn roles_are_given_in_one_transaction_and_psql_tells_by_its_code_what_failed() {
    let shop = Shop::open().await;
    let usual = format!("--schemas '{SCHEMAS}' --marts reports");
    let roles = "select count(*) from pg_roles where rolname like 'vitrina%'";
    let refused = |arguments: &str, says: &str| {
        let output = shop.applies_roles(&shop.owner(), arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{arguments}: {said}");
        assert!(said.contains(says), "{arguments}: {said}");
        assert_eq!(shop.psql(&shop.owner(), roles), "0", "{arguments}");
    };
    refused(&usual, "run `vitrina migrate` on it first");
    vitrina(&["migrate"]).variable("VITRINA_DATABASE_URL", shop.owner()).ends(0);
    refused("--schemas shpo", "schema \"shpo\" does not exist");
    refused(&format!("{usual} --database cinema"), "this is for another database than My Shop");
    shop.writes("reader.password", "");
    refused(&usual, "a password is empty");
    shop.writes("reader.password", "of-the-reader");

    shop.psql(&shop.superuser(), "alter role \"Shop-Owner\" nocreaterole");
    refused(&usual, "vitrina roles --part logins");
    let logins = shop.applies_roles(&shop.superuser(), &format!("{usual} --part logins"));
    assert!(logins.status.success(), "{}", text(&logins.stderr));
    let grants = shop.applies_roles(&shop.owner(), &format!("{usual} --part grants"));
    assert!(grants.status.success(), "{}", text(&grants.stderr));
    shop.vitrina(&["doctor"]).ends(0);

    let temporary = "select has_database_privilege('stranger', current_database(), 'temporary')";
    assert_eq!(shop.psql(&shop.owner(), temporary), "t", "nobody asked for more");
    assert_eq!(
        shop.psql(&shop.owner(), "select rolconnlimit from pg_roles where rolname = 'vitrina_reader'"),
        "50"
    );
    let again = shop.applies_roles(&shop.owner(), &format!("{usual} --part grants --revoke-public"));
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert_eq!(shop.psql(&shop.owner(), temporary), "f");
}

#[tokio::test]
async fn a_reader_cannot_write_where_public_keeps_its_rights() {
    let shop = Shop::open().await;
    shop.is_prepared();
    let reader = shop.url("vitrina_reader", "of-the-reader");
    for sql in
        ["create temp table t (a int)", "create table public.t (a int)", "delete from \"order\".\"select\""]
    {
        let output = Command::new("psql").args(["-X", &reader, "-c", sql]).output().unwrap();
        assert!(!output.status.success(), "{sql}");
        assert!(text(&output.stderr).contains("read-only transaction"), "{}", text(&output.stderr));
    }
}

#[tokio::test]
async fn roles_are_repeatable_after_marts_and_tables_of_others_have_come() {
    let shop = Shop::open().await;
    shop.is_prepared();
    shop.psql(&shop.url("vitrina", "of-vitrina"), "create table reports.own (id int primary key)");
    shop.psql(&shop.owner(), "grant usage, create on schema \"order\" to stranger");
    shop.psql(
        &shop.url("stranger", "of-a-stranger"),
        "create table \"order\".theirs (id int); create view \"order\".catalogue as select relname from pg_class",
    );
    let again = shop.applies_roles(&shop.owner(), &format!("--schemas '{SCHEMAS}' --marts reports"));
    let said = text(&again.stderr);
    assert!(again.status.success(), "{said}");
    assert!(
        said.contains(
            "it belongs to stranger, who executes: grant select on \"order\".theirs to vitrina_reader;"
        ),
        "{said}"
    );
    shop.psql(&shop.url("stranger", "of-a-stranger"), "drop view \"order\".catalogue");
    let (verdict, hint) = shop.doctor("may not read order.theirs");
    assert_eq!(verdict, "warn");
    assert!(hint.contains("grant select on \"order\".theirs to vitrina_reader"), "{hint}");
}

#[tokio::test]
async fn doctor_tells_each_right_that_is_lacking_as_the_statement_that_gives_it() {
    let shop = Shop::open().await;
    shop.is_prepared();
    shop.vitrina(&["doctor"]).ends(0);
    let assumed =
        shop.vitrina(&["doctor"]).variable("VITRINA_CONNECTIONS_SHOP_ALLOWED_SCHEMAS", "content,ugc").ends(4);
    assert!(assumed.contains("FAIL  source shop: its database has no schema content, ugc"), "{assumed}");
    assert!(assumed.contains("its login may read Web Shop,order,sales-2024"), "{assumed}");

    let owner = shop.owner();
    shop.psql(&owner, "revoke usage on schema \"Web Shop\" from vitrina_reader");
    shop.is_told_and_mended("its login may not read Web Shop.Order", "warn");
    shop.psql(&owner, "revoke create on schema reports from vitrina");
    shop.is_told_and_mended("their login may create no marts in schema reports", "warn");
    shop.psql(&owner, "revoke all on schema reports from vitrina");
    shop.is_told_and_mended("their login may not use schema reports", "fail");
    shop.psql(&owner, "drop schema reports");
    shop.is_told_and_mended("there is no schema reports, and their login may not create it", "fail");
    shop.psql(
        &owner,
        "create table reports.old (id int primary key); revoke delete on reports.old from vitrina",
    );
    shop.is_told_and_mended("their login may not write reports.old", "warn");
    let all_is_well = shop.vitrina(&["doctor"]).ends(0);
    assert!(all_is_well.contains("they can be written and created in schema reports"), "{all_is_well}");

    shop.psql(&owner, "revoke usage on schema etl from vitrina");
    let (verdict, hint) = shop.doctor("grant usage on schema etl to vitrina");
    assert_eq!((verdict.as_str(), hint.contains("`vitrina roles`")), ("fail", true), "{hint}");
}

#[tokio::test]
async fn the_change_log_says_as_whom_to_install_it_and_whom_it_lacks_rights_for() {
    let shop = Shop::open().await;
    shop.is_prepared();
    let install = ["changelog", "install", "\"Web Shop\".\"Order\"", "--key", "id"];
    assert!(shop.vitrina(&["changelog", "status"]).ends(0).contains("no changes are logged here"));
    assert!(shop.vitrina(&install).ends(3).contains("create table if not exists vitrina_log.change_log"));
    let error = shop.vitrina(&[&install[..], &["--apply"]].concat()).refuses(4);
    assert!(
        error.contains("log in as the owner of the table, with --url or VITRINA_CHANGELOG_URL"),
        "{error}"
    );
    assert!(!error.contains("42501"), "{error}");
    let nobody = [&install[..], &["--reader", "nobody"]].concat();
    assert!(shop.vitrina(&nobody).refuses(4).contains("there is no role \"nobody\""));

    let as_owner =
        |arguments: &[&str]| shop.vitrina(arguments).variable("VITRINA_CHANGELOG_URL", shop.owner());
    let output = as_owner(&[&install[..], &["--apply"]].concat()).output();
    assert!(output.status.success() && !text(&output.stderr).contains("warning"), "{}", text(&output.stderr));
    assert!(shop.vitrina(&["changelog", "status"]).ends(0).contains("all there"));

    shop.psql(&shop.owner(), "revoke all on schema vitrina_log from vitrina_reader");
    for command in [&["changelog", "status"][..], &install] {
        let error = shop.vitrina(command).refuses(4);
        assert!(error.contains("login vitrina_reader may not read it"), "{error}");
        assert!(
            error.contains("let \"Shop-Owner\" execute: grant usage on schema vitrina_log to"),
            "{error}"
        );
    }
    shop.is_told_and_mended("there is a change log, and its login may not read it", "fail");
    shop.vitrina(&["changelog", "status"]).ends(0);
}
