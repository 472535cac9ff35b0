//! What a search server's refusal means. Its type decides, not its status alone: a full disk comes as 429, a closed index as
//! 400, and a document that does not fit as 400 too.

use reqwest::StatusCode;
use serde::Deserialize;
use vitrina_core::values::value;
use vitrina_core::{Error, ErrorKind, Remedy};

/// A refusal of a whole request or of one of its items.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub(super) struct Fault {
    #[serde(default)]
    pub(super) status: u16,
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    caused_by: Option<Box<Cause>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
struct Cause {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    reason: Option<String>,
}

const CHECK_LOGIN: &str = "check user, password or api_key of the connection, and that they may read, write and manage the index and vitrina-*";

const ALLOW_SCRIPTS: &str = "json objects of documents that several pipelines share are replaced by a script: allow inline scripts of painless for updates at the server (script.allowed_types, script.allowed_contexts)";

/// The setting that limits how much one search may return.
const WINDOW: &str = "index.max_result_window";

/// The type of a refusal that no server has spoken.
const BREAKS_CONNECTION: &str = "breaks_connection";
const DROPPED: &str = "dropped";

/// What servers say of a script that they do not run, and its cause where they may do so later.
const NO_SCRIPT: &str = "failed to execute script";
const BUSY_SCRIPTS: &str = "circuit_breaking_exception";

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    /// May pass: the same again, later and less of it.
    Again,
    /// The document is to blame.
    Row,
    /// A newer version is there.
    Conflict,
    /// The write alias is closed or gone: someone else has taken the pipeline over, or has meddled with it.
    ShutOut,
    /// Too much at once.
    TooLarge,
    /// Nothing of this kind can be written at all.
    Stop,
}

impl Fault {
    /// What an alias that is gone would answer.
    pub(super) fn shut_out() -> Self {
        Self { status: 404, kind: "index_not_found_exception".to_owned(), ..Self::default() }
    }

    /// An ingest pipeline of the index has let go of the document.
    pub(super) fn dropped() -> Self {
        Self { kind: DROPPED.to_owned(), ..Self::default() }
    }

    /// No answer, whenever an operation is sent.
    pub(super) fn breaks_connection() -> Self {
        Self { kind: BREAKS_CONNECTION.to_owned(), ..Self::default() }
    }

    /// Of an item: its reason may hold the document.
    pub(super) fn without_reason(self) -> Self {
        Self { reason: None, ..self }
    }

    pub(super) fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub(super) fn judge(&self) -> Judgement {
        match self.kind.as_str() {
            "cluster_block_exception" | "index_closed_exception" | "security_exception" => {
                return Judgement::Stop;
            }
            BREAKS_CONNECTION | DROPPED => return Judgement::Row,
            // An ingest pipeline says so of a document, and servers call it their own failure.
            "fail_processor_exception" => return Judgement::Row,
            "version_conflict_engine_exception" => return Judgement::Conflict,
            "index_not_found_exception" => return Judgement::ShutOut,
            // A write alias that is closed.
            "illegal_argument_exception" if self.says("no write index") => return Judgement::ShutOut,
            // Too many are compiled just now, or none is run at all.
            "illegal_argument_exception" if self.says(NO_SCRIPT) => {
                let is_busy = self.caused_by.as_ref().is_some_and(|cause| cause.kind == BUSY_SCRIPTS);
                return if is_busy { Judgement::Again } else { Judgement::Stop };
            }
            // Of the index, not of the document.
            "illegal_argument_exception"
                if ["is not an alias", "pipeline with id"].iter().any(|words| self.says(words)) =>
            {
                return Judgement::Stop;
            }
            _ => {}
        }
        match self.status {
            413 => Judgement::TooLarge,
            408 | 429 | 500.. => Judgement::Again,
            // Only a server that has read a document can blame it.
            400 if !self.is_foreign() => Judgement::Row,
            _ => Judgement::Stop,
        }
    }

    pub(super) fn passes(&self) -> bool {
        self.judge() == Judgement::Again
    }

    pub(super) fn is_already_there(&self) -> bool {
        self.kind == "resource_already_exists_exception"
    }

    pub(super) fn is_missing_document(&self) -> bool {
        self.kind == "document_missing_exception"
    }

    /// Not in the words of a search server: a proxy in between has answered.
    fn is_foreign(&self) -> bool {
        self.kind.is_empty() && self.reason.is_none()
    }

    fn says(&self, words: &str) -> bool {
        self.reason.as_deref().is_some_and(|reason| reason.contains(words))
    }

    /// The version that stands in the way, as the server tells it of a document that is deleted by now.
    pub(super) fn current_version(&self) -> Option<i64> {
        let (_, after) = self.reason.as_deref()?.split_once("current version [")?;
        after.split_once(']')?.0.parse().ok()
    }

    /// Code and message of the reject. What the server quotes of the document is marked.
    pub(super) fn of_row(&self) -> (&'static str, String) {
        if self.judge() == Judgement::TooLarge {
            return (
                "row.too_large",
                "the document is larger than a request to the server may be".to_owned(),
            );
        }
        if self.kind == BREAKS_CONNECTION {
            return (
                "row.connection",
                "the connection to the server breaks whenever the document is sent; something in between may refuse it".to_owned(),
            );
        }
        if self.kind == DROPPED {
            return (
                "row.dropped",
                "an ingest pipeline of the index drops the document: see its settings default_pipeline and final_pipeline".to_owned(),
            );
        }
        let kind = self.kind.strip_suffix("_exception").unwrap_or(&self.kind);
        let reason = marked(self.reason.as_deref().unwrap_or(kind));
        let cause = self.caused_by.as_ref().map(|cause| format!(" ({})", cause.kind)).unwrap_or_default();
        let message = format!("the index refuses the document: {reason}{cause}");
        let code = if kind == "strict_dynamic_mapping" { "row.unmapped" } else { "row.mapping" };
        (code, message)
    }

    /// What it means for the run when no single row is to blame.
    pub(super) fn into_error(self, connection: &str) -> Error {
        if self.kind == BREAKS_CONNECTION {
            let message =
                format!("the search connection {connection:?} breaks whenever a document is deleted");
            return Error::release("sink.connection_lost", message);
        }
        let message = self.told(connection);
        match self.judge() {
            // Nobody behind a proxy, shards that are not open yet: an outage, however long it takes.
            Judgement::Again if matches!(self.status, 502..=504) => Error::release("sink.unavailable", message),
            Judgement::Again | Judgement::TooLarge => Error::retry("sink.busy", message),
            Judgement::ShutOut => Error::retry("sink.shut_out", message).of_kind(ErrorKind::WriteAliasClosed),
            _ if self.kind == "cluster_block_exception" && self.says("disk") => {
                Error::release("sink.unavailable", message).hint("free disk space on the server's nodes")
            }
            _ if self.kind == "cluster_block_exception" && (self.says("no master") || self.says("not recovered")) => {
                Error::release("sink.unavailable", message)
            }
            _ if self.kind == "cluster_block_exception" => Error::fix("sink.blocked", message)
                .hint("writing to the index is blocked: set its index.blocks.* settings back"),
            _ if self.kind == "index_closed_exception" => {
                Error::fix("sink.index_closed", message)
                    .of_kind(ErrorKind::IndexClosed)
                    .hint("open the index, or run in mode full")
            }
            _ if self.status == 401 => {
                Error::new(Remedy::AwaitLogin, "sink.login_refused", message).hint(CHECK_LOGIN)
            }
            _ if self.status == 403 => refused(message).hint(CHECK_LOGIN),
            _ if self.says(NO_SCRIPT) => Error::fix("sink.scripts", message).hint(ALLOW_SCRIPTS),
            _ if self.is_foreign() => Error::fix("sink.foreign_answer", message)
                .hint("no search server answers so: check the url of the connection, http or https and the path in it"),
            _ if message.contains(WINDOW) => refused(message)
                .hint("raise max_result_window of the live index to 10000, its default: PUT <index>/_settings; and in the target's settings, if they name it"),
            _ => refused(message),
        }
    }

    fn told(&self, connection: &str) -> String {
        let kind = if self.kind.is_empty() { String::new() } else { format!(" {}", self.kind) };
        let reason = self.reason.as_deref().map(marked).filter(|reason| !reason.is_empty());
        let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        // Of a search only its cause says anything.
        let cause = self.caused_by.as_ref().filter(|_| self.kind == "search_phase_execution_exception");
        let cause = cause.and_then(|cause| cause.reason.as_deref()).map(marked);
        let cause = cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
        format!("the search server {connection:?} answers {}{kind}{reason}{cause}", self.status)
    }
}

fn refused(message: String) -> Error {
    Error::fix("sink.refused", message).of_kind(ErrorKind::StatementRefused)
}

#[derive(Deserialize)]
struct Body {
    error: Refusal,
}

/// Some answers hold a plain text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Refusal {
    Told(Fault),
    Text(String),
}

/// Of a whole answer; one of a proxy in between has no type.
pub(super) fn of_answer(status: StatusCode, body: &[u8]) -> Fault {
    let status = status.as_u16();
    match serde_json::from_slice::<Body>(body) {
        Ok(Body { error: Refusal::Told(fault) }) => Fault { status, ..fault },
        Ok(Body { error: Refusal::Text(reason) }) => {
            Fault { status, reason: Some(reason), ..Fault::default() }
        }
        Err(_) => Fault { status, ..Fault::default() },
    }
}

/// Behind these words servers put names in brackets; elsewhere brackets hold values.
const BEFORE_NAMES: [&str; 12] = [
    "parse field [",
    " type [",
    "index [",
    "alias [",
    "mapper [",
    "blocked by: [",
    "introduction of [",
    "within [",
    "limit of total fields [",
    "format [",
    "aliases [",
    "indices [",
];
/// What is told behind these words is of the document.
const BEFORE_DOCUMENTS: [&str; 4] =
    [" in document with id", ". Preview of field", " Preview of field", ", prefix of the first"];

/// The words of a server, with what may be a value of the document marked: what it puts in quotes, in brackets or behind
/// certain words, and numbers.
fn marked(text: &str) -> String {
    let end = BEFORE_DOCUMENTS.iter().filter_map(|words| text.find(words)).min().unwrap_or(text.len());
    let mut told = String::new();
    let mut rest = &text[..end];
    while let Some(at) = rest.find(['\'', '"', '[']) {
        told += &without_numbers(&rest[..at]);
        let opened = &rest[at..=at];
        let (inside, behind) = match opened {
            "[" => within_brackets(&rest[at + 1..]),
            quote => rest[at + 1..].split_once(quote).unwrap_or((&rest[at + 1..], "")),
        };
        let is_name = opened == "[" && BEFORE_NAMES.iter().any(|words| rest[..=at].ends_with(words));
        told += &match (is_name, opened) {
            (true, _) => format!("[{inside}]"),
            (false, "[") => format!("[{}]", value(inside)),
            (false, quote) => format!("{quote}{}{quote}", value(inside)),
        };
        rest = behind;
    }
    told += &without_numbers(rest);
    if end < text.len() {
        told += &value(&text[end..]);
    }
    told
}

/// A value may hold brackets itself.
fn within_brackets(text: &str) -> (&str, &str) {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        depth += match c {
            '[' => 1,
            ']' => -1,
            _ => 0,
        };
        if depth == 0 {
            return (&text[..at], &text[at + 1..]);
        }
    }
    (text, "")
}

fn without_numbers(text: &str) -> String {
    let is_number =
        |word: &str| word.trim_start_matches('(').starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let word = |word: &str| if is_number(word) { value(word) } else { word.to_owned() };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use vitrina_core::values::masked;

    use super::*;

    fn fault(status: u16, kind: &str, reason: &str) -> Fault {
        Fault { status, kind: kind.to_owned(), reason: Some(reason.to_owned()), caused_by: None }
    }

    #[test]
    fn the_type_of_a_refusal_decides_before_its_status() {
        for (status, kind, reason, expected) in [
            (429, "es_rejected_execution_exception", "rejected execution", Judgement::Again),
            (
                429,
                "cluster_block_exception",
                "index [x] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded]",
                Judgement::Stop,
            ),
            (403, "cluster_block_exception", "blocked by: [FORBIDDEN/8/index write (api)]", Judgement::Stop),
            (400, "index_closed_exception", "closed", Judgement::Stop),
            (
                400,
                "illegal_argument_exception",
                "no write index is defined for alias [x]",
                Judgement::ShutOut,
            ),
            (
                400,
                "illegal_argument_exception",
                "Document contains at least one immense term",
                Judgement::Row,
            ),
            (400, "illegal_argument_exception", NO_SCRIPT, Judgement::Stop),
            (400, "mapper_parsing_exception", "failed to parse field [n] of type [long]", Judgement::Row),
            (400, "strict_dynamic_mapping_exception", "dynamic introduction of [x]", Judgement::Row),
            (404, "index_not_found_exception", "no such index [x]", Judgement::ShutOut),
            (409, "version_conflict_engine_exception", "[1]: version conflict", Judgement::Conflict),
            (413, "", "", Judgement::TooLarge),
            (502, "", "", Judgement::Again),
            (400, "", "a text", Judgement::Row),
            (503, "unavailable_shards_exception", "", Judgement::Again),
            (401, "security_exception", "missing authentication credentials", Judgement::Stop),
        ] {
            assert_eq!(fault(status, kind, reason).judge(), expected, "{status} {kind} {reason}");
        }
    }

    #[test]
    fn a_script_is_sent_again_where_the_server_has_compiled_too_many() {
        let cause = Some(Box::new(Cause { kind: BUSY_SCRIPTS.to_owned(), ..Cause::default() }));
        let busy = Fault { caused_by: cause, ..fault(400, "illegal_argument_exception", NO_SCRIPT) };
        assert_eq!(busy.judge(), Judgement::Again);
        let refused = fault(400, "illegal_argument_exception", NO_SCRIPT).into_error("search");
        assert_eq!(refused.code, "sink.scripts");
    }

    #[test]
    fn a_reject_and_an_error_name_the_field_and_no_value() {
        let reason = "failed to parse field [year] of type [integer] in document with id 'x7'. Preview of field's value: 'soon'";
        let (code, message) = fault(400, "mapper_parsing_exception", reason).of_row();
        assert_eq!(
            (code, masked(&message).as_ref()),
            (
                "row.mapping",
                "the index refuses the document: failed to parse field [year] of type [integer]…"
            )
        );
        let error = fault(400, "mapper_parsing_exception", reason).into_error("search").to_string();
        assert!(error.contains("[year]") && !error.contains("soon") && !error.contains("x7"), "{error}");
        let (_, message) = fault(400, "mapper_parsing_exception", "bad date 'secret' here").of_row();
        assert!(masked(&message).ends_with("bad date '…' here"), "{message}");
    }

    #[test]
    fn what_a_server_tells_of_a_document_is_masked_however_it_quotes_it() {
        for reason in [
            "failed to parse date field [secret] with format [strict_date_optional_time]",
            "failed to parse: For input string: \"secret\"",
            "unknown value [[secret]] for field [year]",
            "Numeric value (7secret) out of range",
            "Value [-7secret] is out of range for an integer",
            "[secret] is no point",
            "it ends in a quote 'secret",
        ] {
            let (_, message) = fault(400, "mapper_parsing_exception", reason).of_row();
            assert!(!masked(&message).contains("secret"), "{message}");
            let error = fault(400, "illegal_argument_exception", reason).into_error("search");
            assert!(error.with_values().contains("secret"), "{error}");
        }
    }

    #[test]
    fn the_version_in_the_way_is_read_from_a_conflict() {
        let conflict = fault(
            409,
            "version_conflict_engine_exception",
            "[7]: version conflict, current version [42] is higher or equal to the one provided [41]",
        );
        assert_eq!(conflict.current_version(), Some(42));
    }
}
