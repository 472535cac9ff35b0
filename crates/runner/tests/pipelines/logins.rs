//! Logins that are refused, and tables that others hold: what has worked before is given back and tried again.

use rstest::rstest;
use vitrina_connectors::Secret;
use vitrina_core::Status;
use vitrina_runner::RunnerSettings;

use crate::stage::Stage;

/// A stage whose `connection` has a login of its own, which is dropped in the end.
struct Login {
    stage: Stage,
    role: String,
    connection: &'static str,
}

impl Login {
    async fn at(connection: &'static str) -> Self {
        let stage = Stage::with_films(20).await;
        let role = format!("login_{}", stage.db.name());
        let role = role[..role.len().min(60)].to_owned();
        stage.db.execute(&format!("create role {role} superuser login password 'first'")).await;
        Self { stage, role, connection }
    }

    fn url(&self, password: &str) -> String {
        self.stage.db.url_as(&self.role, password)
    }

    fn settings(&self, url: impl Into<Secret>) -> RunnerSettings {
        let mut settings = self.stage.settings("tester");
        settings.connections.0.get_mut(self.connection).unwrap().url = url.into();
        settings
    }

    async fn rotate(&self, password: &str) {
        self.stage.db.execute(&format!("alter role {} password '{password}'", self.role)).await;
    }

    async fn drop(self) {
        let Self { stage, role, .. } = self;
        stage.db.execute(&format!("drop owned by {role}; drop role {role}")).await;
    }
}

#[rstest]
#[case("content", "source.login_refused")]
#[case("marts", "sink.login_refused")]
#[tokio::test]
async fn a_login_that_has_worked_and_is_refused_gives_the_pipeline_back(
    #[case] connection: &'static str,
    #[case] code: &str,
) {
    let login = Login::at(connection).await;
    let stage = &login.stage;
    let id = stage.full(5).await;
    stage.request(id).await;
    stage.work_off(login.settings(login.url("first"))).await;
    assert_eq!(stage.status(id).await, Status::Idle);

    login.rotate("second").await;
    stage.db.execute("update content.film set title = 'New'").await;
    stage.request(id).await;
    stage.work_off(login.settings(login.url("first"))).await;
    let told: String =
        stage.db.value("select error_code from etl.etl_attempts order by id desc limit 1").await;
    assert_eq!((stage.status(id).await, told.as_str()), (Status::RunRequested, code));
    let wait = "select retry_at between now() + interval '50 seconds' and now() + interval '80 seconds' from etl.etl_pipelines";
    assert!(stage.db.value::<bool>(wait).await, "servers lock accounts that are tried too often");

    stage.db.execute("update etl.etl_pipelines set retry_at = null").await;
    stage.work_off(login.settings(login.url("second"))).await;
    assert_eq!((stage.status(id).await, stage.differences().await), (Status::Idle, 0));
    login.drop().await;
}

#[rstest]
#[case("content", "source.login_refused")]
#[case("marts", "sink.login_refused")]
#[tokio::test]
async fn a_login_that_has_never_worked_fails_at_once(#[case] connection: &'static str, #[case] code: &str) {
    let login = Login::at(connection).await;
    let stage = &login.stage;
    let id = stage.full(5).await;
    let run = stage.request(id).await;
    stage.work_off(login.settings(login.url("wrong"))).await;
    let error = stage.run_record(run).await.error_code;
    assert_eq!((stage.status(id).await, error.as_deref()), (Status::Failed, Some(code)));
    login.drop().await;
}

#[rstest]
#[case("content")]
#[case("marts")]
#[tokio::test]
async fn a_password_that_was_rotated_is_read_again_within_the_run(#[case] connection: &'static str) {
    let login = Login::at(connection).await;
    let stage = &login.stage;
    let id = stage.full(5).await;
    login.rotate("second").await;
    let rotated = login.url("second");
    let secret = Secret::from_origin(login.url("first").into(), move || Some(rotated.clone().into()));
    let run = stage.request(id).await;
    stage.work_off(login.settings(secret)).await;
    let run = stage.run_record(run).await;
    assert_eq!((stage.status(id).await, run.error), (Status::Idle, None));
    assert_eq!(stage.differences().await, 0);
    login.drop().await;
}

#[tokio::test]
async fn a_mart_that_stays_locked_gives_the_pipeline_back() {
    let stage = Stage::with_films(20).await;
    let id = stage.full(5).await;
    stage.succeed(id).await;
    stage
        .db
        .execute(
            "create function analytics.locked() returns trigger language plpgsql as
                 $$ begin raise sqlstate '55P03' using message = 'canceling statement due to lock timeout'; end $$;
             create trigger locked before insert or update on analytics.film for each row execute function analytics.locked();
             update content.film set title = 'New'",
        )
        .await;
    stage.run(id).await;
    let told: String =
        stage.db.value("select error_code from etl.etl_attempts order by id desc limit 1").await;
    assert_eq!((stage.status(id).await, told.as_str()), (Status::RunRequested, "sink.locked"));
    stage
        .db
        .execute("drop trigger locked on analytics.film; update etl.etl_pipelines set retry_at = null")
        .await;
    stage.work_off(stage.settings("tester")).await;
    assert_eq!((stage.status(id).await, stage.differences().await), (Status::Idle, 0));
}
