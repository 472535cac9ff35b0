//! What the services tell: logs on stderr, text for a terminal and one JSON object a line for programs; what is told of
//! runs, kept in the meta-store; and traces, where somebody wants them.

use std::fmt;
use std::io::{self, IsTerminal};

use jiff::Timestamp;
use serde_json::{Map, Value};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};
use vitrina_runner::RunLog;
use vitrina_telemetry::{Fields, Traces};

use crate::config::{LogFormat, LogSettings};

/// What was started, for those who need a part of it.
#[derive(Debug)]
pub(crate) struct Telling {
    pub(crate) run_log: RunLog,
    traces: Option<Traces>,
}

impl Telling {
    /// Tells the last of it, without waiting long for who does not listen.
    pub(crate) fn end(self) {
        if let Some(traces) = self.traces {
            traces.end();
        }
    }
}

pub(crate) fn start(settings: &LogSettings) -> Telling {
    start_with(settings.format, &settings.level.to_string())
}

/// `filter` is a level, or directives as tracing knows them.
pub(crate) fn start_with(format: LogFormat, filter: &str) -> Telling {
    let terminal = io::stderr().is_terminal();
    let json = match format {
        LogFormat::Auto => !terminal,
        LogFormat::Json => true,
        LogFormat::Text => false,
    };
    // Statements have no place in a log, whatever its level: some set passwords.
    let filter = EnvFilter::new(format!("{filter},sqlx::query=off"));
    let run_log = RunLog::new();
    let (traces, wrong) = match Traces::from_environment("vitrina") {
        Ok(traces) => (traces, None),
        Err(wrong) => (None, Some(wrong)),
    };
    let heard = tracing_subscriber::registry().with(run_log.layer()).with(traces.as_ref().map(Traces::layer));
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    if json {
        let lines = lines.fmt_fields(JsonFields::new()).event_format(JsonLines);
        heard.with(lines.with_filter(filter)).init();
    } else {
        let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        heard.with(lines.with_ansi(colour).with_target(false).with_filter(filter)).init();
    }
    if let Some(wrong) = wrong {
        tracing::warn!("there are no traces: {wrong}; see the OTEL_* variables");
    }
    Telling { run_log, traces }
}

/// `{"ts", "level", "msg", …}`: the fields of the enclosing spans and of the event, in one flat object.
struct JsonLines;

impl<S> FormatEvent<S, JsonFields> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Map::new();
        let spans = context.event_scope().into_iter().flat_map(|scope| scope.from_root());
        for span in spans {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<JsonFields>>();
            line.extend(fields.and_then(|fields| object(&fields.fields)).unwrap_or_default());
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let message = fields.0.remove("message").map(|message| ("msg".to_owned(), message));
        line.extend(fields.0.into_iter().chain(message));
        // Meant for traces.
        line.retain(|name, _| !name.starts_with("otel."));
        let metadata = event.metadata();
        line.insert("ts".to_owned(), Timestamp::now().to_string().into());
        line.insert("level".to_owned(), metadata.level().as_str().to_lowercase().into());
        line.insert("target".to_owned(), metadata.target().into());
        writeln!(writer, "{}", Value::Object(line))
    }
}

fn object(text: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(text).ok()
}
