//! Tokens: made, listed and revoked at the meta-store.

use serde_json::Value;
use vitrina_testbed::Database;

use super::{Vitrina, address, vitrina};

async fn place() -> Database {
    let db = Database::fresh().await;
    at(&db, &["migrate"]).ends(0);
    db
}

fn at(db: &Database, arguments: &[&str]) -> Vitrina {
    vitrina(arguments).variable("VITRINA_DATABASE_URL", db.url())
}

#[tokio::test]
async fn a_token_is_shown_once_opens_the_api_as_its_role_and_closes_when_it_is_revoked() {
    let db = place().await;
    let secret = at(&db, &["token", "create", "grafana", "--role", "viewer"]).ends(0);
    let secret = secret.trim();
    assert!(secret.starts_with("vit_") && secret.len() == 100, "{secret}");
    let stored: i64 =
        db.value(&format!("select count(*) from etl.etl_tokens t where t::text like '%{secret}%'")).await;
    assert_eq!(stored, 0);
    let mut serve = at(&db, &["serve", "--listen", "127.0.0.1:0"]).start();
    let api = format!("http://{}", address(&serve.says_until("the API listens").pop().unwrap()));
    let call = |arguments: &[&str], token: &str| {
        vitrina(arguments).variable("VITRINA_API_URL", &api).variable("VITRINA_API_TOKEN", token)
    };
    call(&["status"], secret).ends(0);
    let error = call(&["enable", "films"], secret).refuses(4);
    assert!(error.contains("needs the role operator"), "{error}");
    call(&["status"], "vit_wrong").refuses(4);
    let listed: Value = serde_json::from_str(&at(&db, &["token", "list", "-o", "json"]).ends(0)).unwrap();
    assert_eq!((&listed[0]["name"], &listed[0]["role"]), (&"grafana".into(), &"viewer".into()));
    assert!(listed[0].get("sha256").is_none() && listed[0]["last_used_at"].is_string(), "{listed}");
    at(&db, &["token", "create", "grafana", "--role", "admin"]).refuses(5);
    at(&db, &["token", "create", "grafana", "--role", "admin", "--replace", "--expires-in", "1h"]).ends(0);
    call(&["status"], secret).refuses(4);
    at(&db, &["token", "revoke", "grafana"]).ends(0);
    at(&db, &["token", "revoke", "grafana"]).refuses(2);
    at(&db, &["token", "create", "a b", "--role", "viewer"]).refuses(2);
    let endless = ["token", "create", "x", "--role", "viewer", "--expires-in", "99999999999999h"];
    let error = at(&db, &endless).refuses(2);
    assert!(error.contains("too long") && error.contains("87600h"), "{error}");
    for tag in ["a,b", " a", "a\nb"] {
        at(&db, &["token", "create", "x", "--role", "viewer", "--tag", tag]).refuses(2);
    }
    let audited: String = db.value("select string_agg(action, ',' order by id) from etl.etl_audit").await;
    assert_eq!(audited, "token.create,token.create,token.revoke");
}

#[tokio::test]
async fn the_admin_token_is_replaced_only_when_that_is_said_and_audited() {
    let db = place().await;
    let admin = |arguments: &[&str], token: &str| {
        at(&db, &[&["token", "admin"], arguments].concat()).variable("VITRINA_ADMIN_TOKEN", token)
    };
    let (first, second) = ("5d3f6a1c9be2470884aa61d7", "b7c1029e5d3f6a1c9be24708");
    assert!(at(&db, &["token", "admin"]).refuses(2).contains("VITRINA_ADMIN_TOKEN"));
    assert!(admin(&[], "change-me").refuses(2).contains("openssl rand"));
    admin(&[], first).ends(0);
    admin(&[], first).ends(0);
    assert!(admin(&[], second).refuses(5).contains("--replace"));
    admin(&["--replace"], second).ends(0);
    let serve = at(&db, &["serve", "--listen", "127.0.0.1:0"]).variable("VITRINA_ADMIN_TOKEN", first);
    assert!(serve.refuses(5).contains("vitrina token admin --replace"));
    let audited: String = db.value("select string_agg(action, ',' order by id) from etl.etl_audit").await;
    assert_eq!(audited, "token.create,token.replace");
}

#[tokio::test]
async fn the_right_to_see_rows_is_given_and_taken_by_token() {
    let db = place().await;
    for arguments in
        [&["viewer"][..], &["viewer", "--rows"], &["operator"], &["operator", "--no-rows"], &["admin"]]
    {
        let name = arguments.join("");
        let all = [&["token", "create", &name, "--role"], arguments].concat();
        at(&db, &all).ends(0);
    }
    assert!(
        at(&db, &["token", "create", "x", "--role", "admin", "--no-rows"])
            .refuses(2)
            .contains("an admin sees rows")
    );
    let listed: Value = serde_json::from_str(&at(&db, &["token", "list", "-o", "json"]).ends(0)).unwrap();
    let seen: Vec<_> =
        listed.as_array().unwrap().iter().map(|token| token["sees_rows"].as_bool().unwrap()).collect();
    assert_eq!(
        seen,
        [true, true, false, false, true],
        "admin, operator, operator--no-rows, viewer, viewer--rows: {listed}"
    );
}

#[tokio::test]
async fn a_token_with_tags_is_for_their_pipelines_alone() {
    let db = place().await;
    let create = ["token", "create", "team", "--role", "operator"];
    for tags in [["--tag", ""], ["--tag", "films,search"], ["--tag", " films"]] {
        at(&db, &[&create[..], &tags].concat()).refuses(2);
    }
    let films = [&create[..], &["--tag", "search", "--tag", "films", "-o", "json"]].concat();
    let made: Value = serde_json::from_str(&at(&db, &films).ends(0)).unwrap();
    assert_eq!(made["tags"], serde_json::json!(["films", "search"]));
    at(&db, &["token", "create", "all", "--role", "viewer"]).ends(0);
    let listed = at(&db, &["token", "list"]).ends(0);
    let line = |name: &str| listed.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line("team").contains("films, search") && line("all ").contains(" all "), "{listed}");
    let audited: String =
        db.value("select string_agg(after ->> 'tags', ';' order by id) from etl.etl_audit").await;
    assert_eq!(audited, r#"["films", "search"]"#);
    at(&db, &["token", "create", "team", "--role", "operator", "--replace"]).ends(0);
    let widened: bool = db.value("select tags is null from etl.etl_tokens where name = 'team'").await;
    assert!(widened, "a token that replaces another has the scope that was said");
}
