//! What is to be done to documents, as the lines of a bulk.

use std::io::Write;

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
}

/// The line of an operation that says which document it is about.
struct Line<'a> {
    action: Action,
    id: String,
    version: Option<i64>,
    /// Where the document lies, if not where its id says.
    routing: Option<&'a str>,
    row: Option<usize>,
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
        self.add(Line { action: Action::Index, id, version: Some(version), routing: None, row }, document)
    }

    pub(super) fn delete(&mut self, id: String, version: i64) {
        let nothing = |_: &mut Vec<u8>| Ok(());
        let line = Line { action: Action::Delete, id, version: Some(version), routing: None, row: None };
        let _ = self.add(line, nothing);
    }

    /// One that lies elsewhere than its id says. Its version is nobody's business: no document of Vitrina's has a routing.
    pub(super) fn delete_routed(&mut self, id: String, routing: &str) {
        let nothing = |_: &mut Vec<u8>| Ok(());
        let line = Line { action: Action::Delete, id, version: None, routing: Some(routing), row: None };
        let _ = self.add(line, nothing);
    }

    /// The same of some of its fields.
    pub(super) fn update_routed(
        &mut self,
        id: String,
        routing: &str,
        fields: impl FnOnce(&mut Vec<u8>) -> Result<(), Unwritable>,
    ) -> Result<(), Unwritable> {
        let line = Line { action: Action::Update, id, version: None, routing: Some(routing), row: None };
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
        self.add(Line { action: Action::Update, id, version: None, routing: None, row }, |out| {
            out.extend_from_slice(b"{\"doc\":");
            fields(out)?;
            out.extend_from_slice(if create { b",\"doc_as_upsert\":true}" } else { b"}" });
            Ok(())
        })
    }

    fn add(
        &mut self,
        line: Line<'_>,
        document: impl FnOnce(&mut Vec<u8>) -> Result<(), Unwritable>,
    ) -> Result<(), Unwritable> {
        let Line { action, id, version, routing, row } = line;
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
        match version {
            Some(version) => {
                drop(write!(self.body, ",\"version\":{version},\"version_type\":\"external\""));
            }
            None if action == Action::Update => self.body.extend_from_slice(b",\"retry_on_conflict\":5"),
            None => {}
        }
        self.body.extend_from_slice(b"}}\n");
        if let Err(reason) = document(&mut self.body) {
            self.body.truncate(start);
            return Err(reason);
        }
        if action != Action::Delete {
            self.body.push(b'\n');
        }
        self.list.push(Operation { start, end: self.body.len(), action, id, row });
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
        routed.delete_routed("9".to_owned(), "d");
        assert_eq!(routed.body, b"{\"delete\":{\"_id\":\"9\",\"routing\":\"d\"}}\n");
    }
}
