//! A run that was asked for: told about or, with `--watch`, followed to its end.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;
use vitrina_api::documents::{Run, RunAccepted, RunOrder, Waiting};
use vitrina_core::{Mode, RunStatus};

use crate::client::{Answer, Client};
use crate::config;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::{self, Pace, Progress, grouped, seconds, shell_word};
use crate::shutdown::Shutdown;

use super::status;

/// Among which a load is looked for, to tell how long the next one takes.
const EARLIER_RUNS: u32 = 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Watch {
    /// Stay until the run has ended; its result decides the exit code
    #[arg(long)]
    pub(super) watch: bool,
    /// Watch no longer than this, such as 90s or 10m; the run goes on
    #[arg(long, value_name = "TIME", requires = "watch", value_parser = timeout)]
    pub(super) timeout: Option<Duration>,
}

/// The answer to a request for a run.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) pipeline: &'a str,
    pub(super) accepted: &'a RunAccepted,
    pub(super) document: &'a Value,
}

/// Asks for a run, and tells of it or follows it.
pub(super) async fn request(
    pipeline: &str,
    order: &RunOrder,
    args: &Watch,
    client: &Client,
    context: &Context,
) -> Result<Exit> {
    let answer = client.run(pipeline, order).await?;
    let asked = Asked { pipeline, accepted: &answer.known, document: &answer.document };
    follow(&asked, args, client, context).await
}

pub(super) async fn follow(
    asked: &Asked<'_>,
    args: &Watch,
    client: &Client,
    context: &Context,
) -> Result<Exit> {
    let shutdown = Shutdown::on_signals()?;
    let Asked { pipeline, accepted, document } = *asked;
    let &RunAccepted { run_id: run, status, pending } = accepted;
    if !args.watch {
        context.output.show(document, || match pending {
            true => format!("one more run waits for the end of run {run}"),
            false => format!("run {run} is {status}"),
        });
        return Ok(Exit::Done);
    }
    let watched = watch(client, pipeline, accepted);
    let ended = shutdown.race_within(args.timeout, watched, |exit, why| left(exit, why, pipeline)).await?;
    conclude(pipeline, &ended, context)
}

pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    config::duration(text).map_err(|complaint| complaint.to_string())
}

fn left(exit: Exit, why: &str, pipeline: &str) -> anyhow::Error {
    exit.fault(format!("{why}; the run goes on\nhint: `vitrina status {pipeline}` shows it, `vitrina cancel {pipeline}` ends it"))
}

/// A request that waits for the end of another run becomes a run of its own then.
pub(super) async fn watch(client: &Client, pipeline: &str, accepted: &RunAccepted) -> Result<Answer<Run>> {
    let &RunAccepted { run_id: run, pending, .. } = accepted;
    let ended = watch_run(client, pipeline, run).await?;
    if !pending {
        return Ok(ended);
    }
    match client.status(pipeline).await?.known.last_run {
        Some(next) if next.id != run => watch_run(client, pipeline, next.id).await,
        _ => Ok(ended),
    }
}

/// Shows the run as it goes. Asking with a wait of a second is answered at once when it ends.
async fn watch_run(client: &Client, pipeline: &str, id: Uuid) -> Result<Answer<Run>> {
    let (mut progress, mut total, mut reasons) = (Progress::default(), None, Reasons::default());
    loop {
        let run = client.follow(id, 1).await?;
        if !run.known.status.is_open() {
            progress.finish();
            return Ok(run);
        }
        if reasons.may_have_come(&run.known) {
            // Only shown, as what is expected.
            let waiting = client.status(pipeline).await.ok().and_then(|status| status.known.waiting);
            reasons.tell(waiting.as_ref(), &mut progress);
        }
        if total.is_none() {
            // Only shown: without it the run goes on as well.
            total = Some(expected(client, pipeline, &run.known).await.unwrap_or_default());
        }
        show(&run.known, total.flatten(), &mut progress);
    }
}

/// Why a run waits, told once until that is another reason or the run has come further.
#[derive(Debug, Default)]
struct Reasons {
    rows_read: Option<u64>,
    told: Option<String>,
}

impl Reasons {
    /// A run that reads rows waits for nobody.
    fn may_have_come(&mut self, run: &Run) -> bool {
        let moved = run.started_at.is_some() && self.rows_read.replace(run.rows_read) != Some(run.rows_read);
        if moved {
            self.told = None;
        }
        !moved
    }

    fn tell(&mut self, waiting: Option<&Waiting>, progress: &mut Progress) {
        let Some(reason) = waiting.map(status::reason) else { return };
        if self.told.as_ref() != Some(&reason) {
            progress.finish();
            output::say(&format!("the run waits: {reason}"));
            self.told = Some(reason);
        }
    }
}

/// How many rows it will read, as far as anybody knows: the keys of a backfill, or what the last full load has read.
async fn expected(client: &Client, pipeline: &str, run: &Run) -> Result<Option<u64>> {
    let is_whole =
        |run: &Run| run.mode == Mode::Full && run.backfill_keys.is_none() && run.backfill_range.is_none();
    if !is_whole(run) {
        return Ok(run.backfill_keys);
    }
    let earlier = client.runs(pipeline, EARLIER_RUNS).await?.known.items;
    let last = earlier.iter().find(|run| run.status == RunStatus::Success && is_whole(run));
    Ok(last.map(|run| run.rows_read))
}

fn show(run: &Run, total: Option<u64>, progress: &mut Progress) {
    let Some(started) = run.started_at else {
        let waiting = "waiting for a runner";
        return progress.show(waiting, waiting, None);
    };
    let elapsed = Timestamp::now().duration_since(started);
    let pace = Pace { done: run.rows_read, total, elapsed: elapsed.try_into().unwrap_or_default() };
    let (stage, read, written) = (run.status.to_string(), grouped(run.rows_read), grouped(run.rows_written));
    let (of, rate, left) = (pace.of_total(), grouped(pace.rate()), pace.left());
    let text = format!("{stage}: {read}{of} rows read, {written} written, {rate} rows/s{left}");
    progress.show(&stage, &text, pace.share());
}

fn conclude(pipeline: &str, run: &Answer<Run>, context: &Context) -> Result<Exit> {
    context.output.show(&run.document, || concluded(&run.known));
    if run.known.rows_rejected > 0 || run.known.error_code.as_deref() == Some("rejects.limit") {
        output::say(&format!("`vitrina rejects {}` shows the rows that were refused", shell_word(pipeline)));
    }
    match run.known.status {
        RunStatus::Success => Ok(Exit::Done),
        RunStatus::Failed => Err(Exit::Failed.fault(failure(pipeline, &run.known))),
        status => {
            output::say(&format!("the run ended as {status}; `vitrina run {pipeline}` starts another"));
            Ok(Exit::Failed)
        }
    }
}

/// A run that has not succeeded is an error, to whom needs what it does.
pub(super) fn check(pipeline: &str, run: &Run) -> Result<()> {
    match run.status {
        RunStatus::Success => Ok(()),
        RunStatus::Failed => Err(Exit::Failed.fault(failure(pipeline, run))),
        status => Err(Exit::Failed.fault(format!(
            "the run ended as {status}\nhint: `vitrina status {pipeline}` shows how it stands"
        ))),
    }
}

pub(super) fn concluded(run: &Run) -> String {
    let Run { id, status, rows_read, rows_written, rows_unchanged, rows_deleted, rows_rejected, .. } = run;
    let [read, written, unchanged] = [rows_read, rows_written, rows_unchanged].map(|rows| grouped(*rows));
    let [deleted, rejected] = [rows_deleted, rows_rejected].map(|rows| grouped(*rows));
    let took = run.duration_ms.map(|took| format!(" in {}", seconds(took))).unwrap_or_default();
    format!(
        "run {id} is {status}: {read} rows read, {written} written, {unchanged} unchanged, {deleted} deleted, \
         {rejected} rejected{took}"
    )
}

fn failure(pipeline: &str, run: &Run) -> String {
    let error = run.error.as_deref().unwrap_or("the run failed");
    match error.contains("\nhint: ") {
        true => error.to_owned(),
        false => format!("{error}\nhint: `vitrina status {pipeline}` shows how it stands"),
    }
}
