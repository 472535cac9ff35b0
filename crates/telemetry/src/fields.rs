//! What a span or an event says of itself, as JSON.

use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};

/// Fields by name, the text of an event as `message`.
#[derive(Debug, Default)]
pub struct Fields(pub Map<String, Value>);

impl Fields {
    fn insert(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    /// Postgres stores no text with a NUL in it, and terminals show none.
    fn insert_text(&mut self, field: &Field, text: &str) {
        self.insert(field, text.replace('\0', "\u{fffd}"));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert_text(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert_text(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::json;
    use tracing::{Event, Subscriber};
    use tracing_subscriber::Layer;
    use tracing_subscriber::layer::{Context, SubscriberExt};

    use super::*;

    /// Keeps what the last event has said.
    #[derive(Default, Clone)]
    struct Heard(Arc<Mutex<Map<String, Value>>>);

    impl<S: Subscriber> Layer<S> for Heard {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let mut fields = Fields::default();
            event.record(&mut fields);
            *self.0.lock().expect("nobody panics with it") = fields.0;
        }
    }

    #[test]
    fn every_field_is_json_of_its_own_kind_and_no_text_holds_a_nul() {
        let heard = Heard::default();
        let subscriber = tracing_subscriber::registry().with(heard.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(
                text = "a\0b",
                shown = %"c\0d",
                debugged = ?Some(1),
                whole = -1_i64,
                count = u64::MAX,
                part = 0.5,
                is = true,
                "said"
            );
        });
        let expected = json!({"text": "a\u{fffd}b", "shown": "c\u{fffd}d", "debugged": "Some(1)", "whole": -1,
            "count": u64::MAX, "part": 0.5, "is": true, "message": "said"});
        assert_eq!(Value::Object(heard.0.lock().expect("nobody panics with it").clone()), expected);
    }
}
