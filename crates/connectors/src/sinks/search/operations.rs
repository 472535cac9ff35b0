//! What is to be done to documents, as the lines of a bulk.

use std::io::Write;

use super::indexes::DocumentState;
use super::values::Unwritable;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Index,
    Delete,
    Update,
}

#[derive(Debug)]
pub(super) struct Operation {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) action: Action,
    id: String,
    /// The row it was made of.
    pub(super) row: Option<usize>,
    /// Only of a document in the state that was read: where another is there by now, or none, nothing is to be done.
    pub(super) conditional: bool,
}

/// Sets whole fields. A `doc` of an update would be merged with what is there, and an object would keep keys that it has lost.
const SET_FIELDS: &str = "ctx._source.putAll(params.doc)";

/// The line of an operation that says which document it is about.
struct Line<'a> {
    action: Action,
    id: String,
    version: Option<i64>,
    /// Where the document lies, if not where its id says.
    routing: Option<&'a str>,
    /// The document as it was read.
    state: Option<DocumentState>,
    row: Option<usize>,
}

impl Line<'_> {
    fn new(action: Action, id: String, row: Option<usize>) -> Self {
        Self { action, id, version: None, routing: None, state: None, row }
    }
}

/// What is to be done to documents, each of them once.
#[derive(Debug, Default)]
pub(super) struct Operations {
    pub(super) body: Vec<u8>,
    pub(super) list: Vec<Operation>,
}

impl Operations {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.body.len() as u64
    }

    pub(super) fn id(&self, place: usize) -> &str {
        &self.list[place].id
    }

    pub(super) fn row(&self, place: usize) -> Option<usize> {
        self.list[place].row
    }

    /// The whole document, unless a newer version of it is there.
    pub(super) fn index(
        &mut self,
        id: String,
        version: i64,
        row: Option<usize>,
        document: impl FnOnce(&mut Vec<u8>) -> Result<(), Unwritable>,
    ) -> Result<(), Unwritable> {
        self.add(Line { version: Some(version), ..Line::new(Action::Index, id, row) }, document)
    }

    pub(super) fn delete(&mut self, id: String, version: i64) {
        let nothing = |_: &mut Vec<u8>| Ok(());
        let line = Line { version: Some(version), ..Line::new(Action::Delete, id, None) };
        let _ = self.add(line, nothing);
    }

    /// One that lies elsewhere than its id says, as it was read. It has no version of Vitrina's, which uses no routings.
    pub(super) fn delete_routed(&mut self, id: String, routing: &str, state: DocumentState) {
        let nothing = |_: &mut Vec<u8>| Ok(());
        let line = Line { routing: Some(routing), state: Some(state), ..Line::new(Action::Delete, id, None) };
        let _ = self.add(line, nothing);
    }

    /// The same of some of its fields.
    pub(super) fn update_routed(
        &mut self,
        id: String,
        routing: &str,
        state: DocumentState,
        fields: impl FnOnce(&mut Vec<u8>) -> Result<(), Unwritable>,
    ) -> Result<(), Unwritable> {
        let line = Line { routing: Some(routing), state: Some(state), ..Line::new(Action::Update, id, None) };
        self.add(line, |out| {
            out.extend_from_slice(b"{\"doc\":");
            fields(out)?;
            out.extend_from_slice(b"}");
            Ok(())
        })
    }

    /// These fields of the document; `create` where it is not there yet.
    pub(super) fn update(
        &mut self,
        id: String,
        row: Option<usize>,
        create: bool,
        fields: impl FnOnce(&mut Vec<u8>) -> Result<(), Unwritable>,
    ) -> Result<(), Unwritable> {
        self.add(Line::new(Action::Update, id, row), |out| {
            out.extend_from_slice(b"{\"doc\":");
            fields(out)?;
            out.extend_from_slice(if create { b",\"doc_as_upsert\":true}" } else { b"}" });
            Ok(())
        })
    }

    /// The same, where a field is an object, which is replaced as a whole. The document is created where it is not there yet.
    pub(super) fn update_objects(
        &mut self,
        id: String,
        row: usize,
        fields: impl FnOnce(&mut Vec<u8>) -> Result<(), Unwritable>,
    ) -> Result<(), Unwritable> {
        self.add(Line::new(Action::Update, id, Some(row)), |out| {
            drop(write!(
                out,
                "{{\"script\":{{\"lang\":\"painless\",\"source\":\"{SET_FIELDS}\",\"params\":{{\"doc\":"
            ));
            let start = out.len();
            fields(out)?;
            let end = out.len();
            out.extend_from_slice(b"}},\"upsert\":");
            out.extend_from_within(start..end);
            out.push(b'}');
            Ok(())
        })
    }

    fn add(
        &mut self,
        line: Line<'_>,
        document: impl FnOnce(&mut Vec<u8>) -> Result<(), Unwritable>,
    ) -> Result<(), Unwritable> {
        let Line { action, id, version, routing, state, row } = line;
        let start = self.body.len();
        let name = match action {
            Action::Index => "index",
            Action::Delete => "delete",
            Action::Update => "update",
        };
        drop(write!(self.body, "{{\"{name}\":{{\"_id\":"));
        drop(serde_json::to_writer(&mut self.body, &id));
        if let Some(routing) = routing {
            self.body.extend_from_slice(b",\"routing\":");
            drop(serde_json::to_writer(&mut self.body, routing));
        }
        match (version, state) {
            (Some(version), _) => {
                drop(write!(self.body, ",\"version\":{version},\"version_type\":\"external\""));
            }
            (None, Some(DocumentState { seq_no, primary_term })) => {
                drop(write!(self.body, ",\"if_seq_no\":{seq_no},\"if_primary_term\":{primary_term}"));
            }
            (None, None) if action == Action::Update => {
                self.body.extend_from_slice(b",\"retry_on_conflict\":5");
            }
            (None, None) => {}
        }
        self.body.extend_from_slice(b"}}\n");
        if let Err(reason) = document(&mut self.body) {
            self.body.truncate(start);
            return Err(reason);
        }
        if action != Action::Delete {
            self.body.push(b'\n');
        }
        let conditional = state.is_some();
        self.list.push(Operation { start, end: self.body.len(), action, id, row, conditional });
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn operations() -> Operations {
        let mut operations = Operations::default();
        for number in 0..4 {
            let document = |out: &mut Vec<u8>| {
                out.extend_from_slice(b"{\"a\":1}");
                Ok(())
            };
            operations.index(number.to_string(), 5, Some(number), document).unwrap();
        }
        operations.delete("9".to_owned(), 6);
        operations
    }

    #[test]
    fn an_operation_is_a_line_or_two_and_a_row_that_cannot_be_written_leaves_none() {
        let mut operations = operations();
        assert_eq!(operations.index("x".to_owned(), 5, None, |_| Err("no")), Err("no"));
        let body = String::from_utf8(operations.body.clone()).unwrap();
        let lines: Vec<&str> = body.lines().collect();
        assert_eq!(lines.len(), 9);
        assert_eq!(lines[0], r#"{"index":{"_id":"0","version":5,"version_type":"external"}}"#);
        assert_eq!(lines[8], r#"{"delete":{"_id":"9","version":6,"version_type":"external"}}"#);
        let mut routed = Operations::default();
        routed.delete_routed("9".to_owned(), "d", DocumentState { seq_no: 4, primary_term: 2 });
        let expected = r#"{"delete":{"_id":"9","routing":"d","if_seq_no":4,"if_primary_term":2}}"#;
        assert_eq!(String::from_utf8(routed.body).unwrap().trim_end(), expected);
    }

    #[test]
    fn objects_of_shared_documents_are_set_by_a_script() {
        let mut operations = Operations::default();
        let fields = |out: &mut Vec<u8>| {
            out.extend_from_slice(br#"{"a":{"b":1}}"#);
            Ok(())
        };
        operations.update_objects("7".to_owned(), 0, fields).unwrap();
        let body = String::from_utf8(operations.body).unwrap();
        let lines: Vec<&str> = body.lines().collect();
        let expected = r#"{"script":{"lang":"painless","source":"ctx._source.putAll(params.doc)","params":{"doc":{"a":{"b":1}}}},"upsert":{"a":{"b":1}}}"#;
        assert_eq!(lines, [r#"{"update":{"_id":"7","retry_on_conflict":5}}"#, expected]);
    }
}
