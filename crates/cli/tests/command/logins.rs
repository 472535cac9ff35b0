//! Passwords that are rotated while Vitrina is at work, and pipelines that failed meanwhile.

use std::fs;

use super::stand::Stand;
use super::{place, vitrina};

#[tokio::test]
async fn a_rotated_password_is_read_again_and_failed_pipelines_go_on_together() {
    let (parent, directory) = place();
    let stand = Stand::start(&directory);
    let kept = parent.path().join("url");
    let url = url::Url::parse(stand.value("VITRINA_DATABASE_URL")).unwrap();
    fs::write(&kept, url.as_str()).unwrap();
    let reference = format!("${{file:{}}}", kept.display());
    let mut up = stand
        .vitrina(&["up", "--listen", "127.0.0.1:0"])
        .variable("VITRINA_DATABASE_URL", &reference)
        .variable("VITRINA_CONNECTIONS_MARTS_URL", &reference)
        .start();
    let api = up.is_up();
    let ask = |arguments: &[&str]| vitrina(arguments).variable("VITRINA_API_URL", format!("http://{api}"));
    assert!(ask(&["run", "--failed"]).ends(0).contains("no pipeline has failed"));

    let mut owner = stand.owner_session().await;
    sqlx::raw_sql("alter schema content rename to away; alter schema ugc rename to apart")
        .execute(&mut owner)
        .await
        .unwrap();
    for pipeline in ["film_dim_full", "film_rating_agg_full"] {
        ask(&["run", pipeline, "--watch", "--timeout", "60s"]).ends(1);
    }
    let mut rotated = url.clone();
    rotated.set_password(Some("rotated")).unwrap();
    fs::write(&kept, rotated.as_str()).unwrap();
    let login = url.username();
    let rotate = format!(
        "alter role {login} password 'rotated';
         select pg_terminate_backend(pid) from pg_stat_activity where usename = '{login}';
         alter schema away rename to content; alter schema apart rename to ugc"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(rotate)).execute(&mut owner).await.unwrap();
    // The API's sessions, and the runner's.
    for _ in 0..2 {
        up.says_until("the login of the meta-store was read again");
    }
    let revived = ask(&["run", "--failed"]).ends(0);
    assert_eq!(revived.lines().count(), 2, "{revived}");
    assert!(revived.starts_with("film_dim_full: run "), "{revived}");
    for pipeline in ["film_dim_full", "film_rating_agg_full"] {
        let end = ask(&["run", pipeline, "--watch", "--timeout", "60s"]).ends(0);
        assert!(end.contains("is SUCCESS: "), "{end}");
    }
}
