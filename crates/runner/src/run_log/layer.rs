//! Hears what is told inside runs.

use std::sync::atomic::{AtomicU32, Ordering};

use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;
use uuid::Uuid;
use vitrina_core::values::{other_pipeline, value};
use vitrina_core::{PipelineId, RunId};
use vitrina_python::PRINTED;
use vitrina_store::LogLine;
use vitrina_telemetry::Fields;

use super::{Dropped, Message};

/// A run that talks more than this is cut short.
pub(super) const LINES_A_RUN: u32 = 5000;
/// Told by the span, and so the same on every line.
const OF_EVERY_LINE: [&str; 4] = ["pipeline", "pipeline_id", "run_id", "trace_id"];

#[derive(Debug)]
pub struct RunLogLayer {
    pub(super) sender: mpsc::Sender<Message>,
    pub(super) dropped: Dropped,
}

/// What a run's span knows of it.
struct OfRun {
    run: RunId,
    pipeline: PipelineId,
    lines: AtomicU32,
}

/// What a batch's span knows of it.
struct OfBatch(Value);

impl<S> Layer<S> for RunLogLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, span: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(span) else { return };
        if !span.metadata().target().starts_with("vitrina_runner") {
            return;
        }
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        match span.name() {
            "run" => {
                let (Some(run), Some(pipeline)) = (id(&fields, "run_id"), id(&fields, "pipeline_id")) else {
                    return;
                };
                let of_run =
                    OfRun { run: RunId(run), pipeline: PipelineId(pipeline), lines: AtomicU32::new(0) };
                span.extensions_mut().insert(of_run);
            }
            "batch" => {
                let batch = fields.0.remove("batch").unwrap_or_default();
                span.extensions_mut().insert(OfBatch(batch));
            }
            _ => {}
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut batch = None;
        for span in context.event_scope(event).into_iter().flatten() {
            let extensions = span.extensions();
            batch = extensions.get::<OfBatch>().map(|OfBatch(batch)| batch.clone()).or(batch);
            if let Some(of_run) = extensions.get::<OfRun>() {
                return self.hear(event, of_run, batch);
            }
        }
    }
}

impl RunLogLayer {
    fn hear(&self, event: &Event<'_>, of_run: &OfRun, batch: Option<Value>) {
        let (run, pipeline) = (of_run.run, of_run.pipeline);
        if of_run.lines.fetch_add(1, Ordering::Relaxed) >= LINES_A_RUN {
            return self.dropped.count(run, pipeline);
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let message = fields.0.remove("message");
        let mut fields = fields.0;
        fields.retain(|name, _| !OF_EVERY_LINE.contains(&name.as_str()));
        fields.extend(batch.map(|batch| ("batch".to_owned(), batch)));
        hide_owner(&mut fields);
        let line = LogLine {
            run_id: run,
            pipeline_id: pipeline,
            at: Timestamp::now(),
            level: level(*event.metadata().level()),
            message: told(event, message.as_ref().and_then(Value::as_str).unwrap_or_default()),
            fields,
        };
        if self.sender.try_send(Message::Line(line)).is_err() {
            self.dropped.count(run, pipeline);
        }
    }
}

/// An error is logged as it prints itself, without marks. This one names the pipeline that has the target.
fn hide_owner(fields: &mut Map<String, Value>) {
    if fields.get("error_code").and_then(Value::as_str) == Some(OWNED)
        && let Some(Value::String(error)) = fields.get_mut("error")
    {
        *error = other_pipeline(error);
    }
}

const OWNED: &str = "sink.owned";

/// What functions write may hold values of rows.
fn told(event: &Event<'_>, message: &str) -> String {
    if event.metadata().target() != PRINTED {
        return message.to_owned();
    }
    let (prefix, printed) = message.strip_prefix("python: ").map_or(("", message), |line| ("python: ", line));
    format!("{prefix}{}", value(printed))
}

fn level(level: tracing::Level) -> &'static str {
    match level {
        tracing::Level::ERROR => "error",
        tracing::Level::WARN => "warn",
        _ => "info",
    }
}

fn id(fields: &Fields, name: &str) -> Option<Uuid> {
    fields.0.get(name)?.as_str()?.parse().ok()
}
