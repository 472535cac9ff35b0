//! The calls themselves.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::Value;
use uuid::Uuid;
use vitrina_api::documents::{
    Applied, AuditEntry, CheckpointVersion, Connection, ConnectionTest, Difference, Health, LogLine, Page,
    PipelineState, PipelineStatus, PipelineSummary, Plan, Preview, PythonTask, Reconcile, ReconcileOrder,
    RejectOrder, Rejects, RejectsChanged, Repair, RepairAccepted, RetryAccepted, Row, Run, RunAccepted,
    RunOrder, Runner, Standing, StateForecast, TargetDetail, Verdict,
};
use vitrina_core::DifferenceKind;

use super::{Answer, Client, Error, PATIENCE, Result};

/// For calls that look at many queries.
const LONG: Duration = Duration::from_secs(300);

/// What is to become of a checkpoint.
#[derive(Debug)]
pub(crate) enum StateWish {
    /// A version of the history.
    Restore(i64),
    Reset,
}

impl Client {
    /// All of them, whatever number of pages that takes.
    pub(crate) async fn pipelines(&self) -> Result<Answer<Page<PipelineSummary>>> {
        let mut whole: Option<Answer<Page<PipelineSummary>>> = None;
        loop {
            let cursor = whole.as_ref().and_then(|page| page.known.next_cursor.clone());
            let request = self.request(Method::GET, &["pipelines"]).query(&[("limit", 500)]);
            let page: Answer<Page<PipelineSummary>> =
                self.ask(request.query(&cursor.map(|cursor| [("cursor", cursor)]))).await?;
            let whole = match &mut whole {
                Some(whole) => whole.append(page),
                none => none.insert(page),
            };
            if whole.known.next_cursor.is_none() {
                break;
            }
        }
        Ok(whole.expect("a first page"))
    }

    /// Without its configuration, which no command reads.
    pub(crate) async fn pipeline(&self, pipeline: &str) -> Result<Answer<PipelineSummary>> {
        self.ask(self.about(Method::GET, pipeline, &[])?).await
    }

    /// Only of the version that was seen.
    pub(crate) async fn delete(&self, pipeline: &str, version: i64) -> Result<()> {
        let request = self.about(Method::DELETE, pipeline, &[])?;
        self.ask::<()>(request.header("if-match", format!("\"{version}\""))).await.map(drop)
    }

    pub(crate) async fn status(&self, pipeline: &str) -> Result<Answer<PipelineStatus>> {
        self.ask(self.about(Method::GET, pipeline, &["status"])?).await
    }

    pub(crate) async fn runs(&self, pipeline: &str, limit: u32) -> Result<Answer<Page<Run>>> {
        self.ask(self.about(Method::GET, pipeline, &["runs"])?.query(&[("limit", limit)])).await
    }

    pub(crate) async fn run(&self, pipeline: &str, order: &RunOrder) -> Result<Answer<RunAccepted>> {
        self.ask(self.about(Method::POST, pipeline, &["run"])?.json(order)).await
    }

    /// `pause`, `cancel`, `enable` or `disable`.
    pub(crate) async fn change(&self, pipeline: &str, verb: &str) -> Result<Answer<PipelineStatus>> {
        self.ask(self.about(Method::POST, pipeline, &[verb])?).await
    }

    pub(crate) async fn validate(&self, pipeline: &str) -> Result<Answer<Verdict>> {
        self.ask(self.about(Method::POST, pipeline, &["validate"])?).await
    }

    /// `{pipeline, target?}`
    pub(crate) async fn validate_unsaved(&self, question: &Value) -> Result<Answer<Verdict>> {
        self.ask(self.request(Method::POST, &["validate"]).json(question).timeout(LONG)).await
    }

    pub(crate) async fn plan(&self, configuration: &Value) -> Result<Answer<Plan>> {
        self.ask(self.request(Method::POST, &["plan"]).json(configuration).timeout(LONG)).await
    }

    pub(crate) async fn apply(&self, configuration: Value, plan_hash: &str) -> Result<Answer<Applied>> {
        let order = serde_json::json!({"configuration": configuration, "plan_hash": plan_hash});
        self.ask(self.request(Method::POST, &["apply"]).json(&order).timeout(LONG)).await
    }

    pub(crate) async fn export(&self) -> Result<Value> {
        Ok(self.ask::<Value>(self.request(Method::GET, &["export"])).await?.document)
    }

    pub(crate) async fn state(&self, pipeline: &str) -> Result<Answer<PipelineState>> {
        self.ask(self.about(Method::GET, pipeline, &["state"])?).await
    }

    pub(crate) async fn state_history(
        &self,
        pipeline: &str,
        limit: u32,
    ) -> Result<Answer<Page<CheckpointVersion>>> {
        self.ask(self.about(Method::GET, pipeline, &["state", "history"])?.query(&[("limit", limit)])).await
    }

    pub(crate) async fn forecast_state(
        &self,
        pipeline: &str,
        wish: &StateWish,
    ) -> Result<Answer<StateForecast>> {
        self.ask(self.wish(pipeline, wish)?.query(&[("dry_run", true)])).await
    }

    /// Only of the version that was seen.
    pub(crate) async fn change_state(
        &self,
        pipeline: &str,
        wish: &StateWish,
        version: i64,
    ) -> Result<Answer<PipelineState>> {
        self.ask(self.wish(pipeline, wish)?.header("if-match", format!("\"{version}\""))).await
    }

    fn wish(&self, pipeline: &str, wish: &StateWish) -> Result<RequestBuilder> {
        match wish {
            StateWish::Restore(version) => {
                let edit = self.about(Method::PATCH, pipeline, &["state"])?;
                Ok(edit.json(&serde_json::json!({"restore": version})))
            }
            StateWish::Reset => self.about(Method::POST, pipeline, &["state", "reset"]),
        }
    }

    pub(crate) async fn row(&self, pipeline: &str, key: &str) -> Result<Answer<Row>> {
        self.ask(self.about(Method::GET, pipeline, &["row"])?.query(&[("key", key)])).await
    }

    pub(crate) async fn rejects(
        &self,
        pipeline: &str,
        code: Option<&str>,
        limit: u32,
    ) -> Result<Answer<Rejects>> {
        let request = self.about(Method::GET, pipeline, &["rejects"])?.query(&[("limit", limit)]);
        self.ask(request.query(&code.map(|code| [("code", code)]))).await
    }

    /// `acknowledge` or `discard`.
    pub(crate) async fn change_rejects(
        &self,
        pipeline: &str,
        verb: &str,
        choice: &RejectOrder,
    ) -> Result<Answer<RejectsChanged>> {
        self.ask(self.about(Method::POST, pipeline, &["rejects", verb])?.json(choice)).await
    }

    pub(crate) async fn retry_rejects(
        &self,
        pipeline: &str,
        choice: &RejectOrder,
    ) -> Result<Answer<RetryAccepted>> {
        self.ask(self.about(Method::POST, pipeline, &["rejects", "retry"])?.json(choice)).await
    }

    pub(crate) async fn reconcile(
        &self,
        pipeline: &str,
        order: &ReconcileOrder,
    ) -> Result<Answer<Reconcile>> {
        self.ask(self.about(Method::POST, pipeline, &["reconcile"])?.json(order)).await
    }

    /// The last verdict.
    pub(crate) async fn standing(&self, pipeline: &str) -> Result<Answer<Standing>> {
        self.ask(self.about(Method::GET, pipeline, &["reconcile"])?).await
    }

    /// Of one pipeline or of all.
    pub(crate) async fn reconciles(
        &self,
        pipeline: Option<&str>,
        limit: u32,
    ) -> Result<Answer<Page<Reconcile>>> {
        let request = match pipeline {
            Some(pipeline) => self.about(Method::GET, pipeline, &["reconciles"])?,
            None => self.request(Method::GET, &["reconciles"]),
        };
        self.ask(request.query(&[("limit", limit)])).await
    }

    /// The reconcile when it has ended, or as it is after `wait_seconds`.
    pub(crate) async fn follow_reconcile(&self, id: Uuid, wait_seconds: u64) -> Result<Answer<Reconcile>> {
        let timeout = PATIENCE + Duration::from_secs(wait_seconds);
        let request = self.about_reconcile(Method::GET, id, &[]).query(&[("wait", wait_seconds)]);
        self.ask(request.timeout(timeout)).await
    }

    pub(crate) async fn cancel_reconcile(&self, id: Uuid) -> Result<Answer<Reconcile>> {
        self.ask(self.about_reconcile(Method::POST, id, &["cancel"])).await
    }

    pub(crate) async fn differences(
        &self,
        id: Uuid,
        kind: Option<DifferenceKind>,
        limit: u32,
    ) -> Result<Answer<Page<Difference>>> {
        let request = self.about_reconcile(Method::GET, id, &["differences"]).query(&[("limit", limit)]);
        self.ask(request.query(&kind.map(|kind| [("kind", kind)]))).await
    }

    /// All of them, passed on as they come.
    pub(crate) async fn download_differences(
        &self,
        id: Uuid,
        kind: Option<DifferenceKind>,
        format: &str,
        to: impl Fn(&[u8]) -> bool,
    ) -> Result<()> {
        let request = self.about_reconcile(Method::GET, id, &["differences"]).query(&[("format", format)]);
        self.pass_on(request.query(&kind.map(|kind| [("kind", kind)])).timeout(LONG), to).await
    }

    /// What a repair would do.
    pub(crate) async fn forecast_repair(&self, id: Uuid) -> Result<Answer<Repair>> {
        self.ask(self.about_reconcile(Method::POST, id, &["repair"]).query(&[("dry_run", true)])).await
    }

    pub(crate) async fn repair(&self, id: Uuid) -> Result<Answer<RepairAccepted>> {
        self.ask(self.about_reconcile(Method::POST, id, &["repair"])).await
    }

    fn about_reconcile(&self, method: Method, id: Uuid, what: &[&str]) -> RequestBuilder {
        self.request(method, &[&["reconciles", &id.to_string()], what].concat())
    }

    /// The run when it has ended, or as it is after `wait_seconds`.
    pub(crate) async fn follow(&self, run: Uuid, wait_seconds: u64) -> Result<Answer<Run>> {
        let timeout = PATIENCE + Duration::from_secs(wait_seconds);
        let request = self.request(Method::GET, &["runs", &run.to_string()]).query(&[("wait", wait_seconds)]);
        self.ask(request.timeout(timeout)).await
    }

    /// Lines of a run's log after a cursor, or as soon as there is one.
    pub(crate) async fn logs(
        &self,
        run: Uuid,
        cursor: Option<&str>,
        limit: u32,
        wait_seconds: u64,
    ) -> Result<Answer<Page<LogLine>>> {
        let request = self.request(Method::GET, &["runs", &run.to_string(), "logs"]);
        let request = request.query(&[("limit", u64::from(limit)), ("wait", wait_seconds)]);
        let request = request.query(&cursor.map(|cursor| [("cursor", cursor)]));
        self.ask(request.timeout(PATIENCE + Duration::from_secs(wait_seconds))).await
    }

    pub(crate) async fn preview(&self, pipeline: &str, limit: u32) -> Result<Answer<Preview>> {
        self.ask(self.about(Method::POST, pipeline, &["preview"])?.query(&[("limit", limit)])).await
    }

    pub(crate) async fn preview_unsaved(&self, pipeline: Value, limit: u32) -> Result<Answer<Preview>> {
        let question = serde_json::json!({"pipeline": pipeline});
        self.ask(self.request(Method::POST, &["preview"]).query(&[("limit", limit)]).json(&question)).await
    }

    pub(crate) async fn connections(&self) -> Result<Answer<Page<Connection>>> {
        self.ask(self.request(Method::GET, &["connections"])).await
    }

    pub(crate) async fn test_connection(&self, name: &str) -> Result<Answer<ConnectionTest>> {
        self.ask(self.request(Method::POST, &["connections", name, "test"])).await
    }

    pub(crate) async fn python_tasks(&self) -> Result<Answer<Page<PythonTask>>> {
        self.ask(self.request(Method::GET, &["python-tasks"])).await
    }

    pub(crate) async fn targets(&self) -> Result<Answer<Page<TargetDetail>>> {
        self.ask(self.request(Method::GET, &["targets"])).await
    }

    pub(crate) async fn audit(&self, limit: u32) -> Result<Answer<Page<AuditEntry>>> {
        self.ask(self.request(Method::GET, &["audit"]).query(&[("limit", limit)])).await
    }

    pub(crate) async fn runners(&self) -> Result<Answer<Page<Runner>>> {
        self.ask(self.request(Method::GET, &["runners"])).await
    }

    pub(crate) async fn drain(&self, runner: &str) -> Result<Answer<Runner>> {
        self.ask(self.request(Method::POST, &["runners", runner, "drain"])).await
    }

    pub(crate) async fn health(&self) -> Result<Answer<Health>> {
        let (status, document) = self.send(self.request(Method::GET, &["health"])).await?;
        let answer = self.read::<Health>(status, document)?;
        match status {
            StatusCode::OK => Ok(answer),
            _ => Err(Error::Unhealthy { url: self.base.clone(), meta_store: answer.known.meta_store }),
        }
    }
}
