//! Traces by OpenTelemetry, sent by OTLP over HTTP. Off unless a variable names where to; all the standard `OTEL_*`
//! variables count. Whatever becomes of the receiver, the work goes on.

use std::fmt;
use std::str::FromStr;
use std::sync::mpsc;
use std::time::Duration;

use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;

const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
/// A receiver that does not answer must not keep a process that ends.
const FAREWELL: Duration = Duration::from_secs(3);

/// The traces of this process, until they are ended.
#[derive(Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
}

impl Traces {
    /// `None` where nobody wants them. `service` is what it is called unless OTEL_SERVICE_NAME says otherwise.
    pub fn from_environment(service: &'static str) -> Result<Option<Self>, String> {
        let set = |name: &str| std::env::var(name).is_ok_and(|value| !value.trim().is_empty());
        let off = std::env::var("OTEL_SDK_DISABLED").is_ok_and(|value| value.eq_ignore_ascii_case("true"))
            || std::env::var("OTEL_TRACES_EXPORTER").is_ok_and(|value| value == "none");
        if off || !ENDPOINTS.into_iter().any(set) {
            return Ok(None);
        }
        // Whoever asked for encryption first has chosen; the choice is the same.
        drop(rustls::crypto::ring::default_provider().install_default());
        let exporter = SpanExporter::builder().with_http().build().map_err(|error| error.to_string())?;
        let attributes = std::env::var("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
        let mut resource = Resource::builder();
        if !set("OTEL_SERVICE_NAME") && !attributes.contains("service.name=") {
            resource = resource.with_service_name(service);
        }
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.with_attribute(version).build())
            .build();
        Ok(Some(Self { provider }))
    }

    /// Spans of this product, with the events inside them.
    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let tracer = self.provider.tracer("vitrina");
        let layer = tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false);
        // Not the exporter's own spans, whose export would make more of them.
        layer.with_filter(Targets::new().with_target("vitrina", LevelFilter::INFO))
    }

    /// Sends what is left, and waits for that only so long.
    pub fn end(self) {
        let (sender, ended) = mpsc::channel();
        // A thread of its own, because the exporter may block for longer than it was asked to.
        std::thread::spawn(move || {
            let told = self.provider.shutdown_with_timeout(FAREWELL);
            sender.send(told).ok();
        });
        match ended.recv_timeout(FAREWELL) {
            Ok(Ok(())) => {}
            _ => tracing::warn!("the last spans could not be sent: nobody answers at the OTLP endpoint"),
        }
    }
}

/// The header `traceparent` of a caller, as W3C Trace Context has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceParent(SpanContext);

impl TraceParent {
    pub fn trace_id(&self) -> String {
        self.0.trace_id().to_string()
    }

    /// What a caller inside `span` passes on; `None` where there are no traces.
    pub fn of_span(span: &Span) -> Option<Self> {
        let context = span.context();
        let context = context.span().span_context().clone();
        context.is_valid().then_some(Self(context))
    }
}

/// `None` is what a header that cannot be read is worth: the standard has it ignored.
impl FromStr for TraceParent {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let parts: Vec<&str> = text.split('-').collect();
        let [version, trace, span, flags, later @ ..] = parts.as_slice() else { return Err(()) };
        let is_hex = |part: &str, length: usize| {
            part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let shaped = is_hex(version, 2) && is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2);
        if !shaped || *version == "ff" || (*version == "00" && !later.is_empty()) {
            return Err(());
        }
        let trace = TraceId::from_hex(trace).map_err(drop)?;
        let span = SpanId::from_hex(span).map_err(drop)?;
        let sampled = u8::from_str_radix(flags, 16).map_err(drop)? & 1 == 1;
        let flags = if sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
        let context = SpanContext::new(trace, span, flags, true, TraceState::default());
        if context.is_valid() { Ok(Self(context)) } else { Err(()) }
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(context) = self;
        write!(f, "00-{}-{}-{:02x}", context.trace_id(), context.span_id(), context.trace_flags().to_u8())
    }
}

/// Makes `span` a part of the caller's trace. Before anything happens inside it.
pub fn continue_trace(span: &Span, caller: &TraceParent) {
    // An error is the absence of traces.
    span.set_parent(Context::new().with_remote_span_context(caller.0.clone())).ok();
}

/// The trace that `span` is a part of; `None` where there are no traces.
pub fn trace_id(span: &Span) -> Option<String> {
    TraceParent::of_span(span).map(|own| own.trace_id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_read_as_the_standard_says() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let read: TraceParent = text.parse().unwrap();
        assert_eq!((read.to_string().as_str(), read.trace_id().as_str()), (text, &text[3..35]));
        assert!(format!("cc{}-later", &text[2..]).parse::<TraceParent>().is_ok(), "later versions add parts");
        for wrong in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b71692033-01",
        ] {
            assert!(wrong.parse::<TraceParent>().is_err(), "{wrong:?}");
        }
    }
}
