//! Which installation created an index, as the metadata of its own mapping says. A name alone proves nothing: no index is
//! deleted without this mark, or without a control document of this installation that names it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;
use vitrina_core::{PipelineId, Result};

use super::client::Client;
use super::indexes::{self, pattern};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) installation: Uuid,
    pub(super) pipeline: PipelineId,
    /// The load that filled it; none of a swap guard, or where several pipelines write to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) load: Option<Uuid>,
}

impl Mark {
    /// The mapping of an index that carries it, beside what others note there.
    pub(super) fn put_on(&self, mut mapping: Value) -> Value {
        let notes = json!(self);
        for (name, note) in notes.as_object().into_iter().flatten() {
            mapping["_meta"]["vitrina"][name] = note.clone();
        }
        mapping
    }

    fn of(mapping: &Value) -> Option<Self> {
        serde_json::from_value(mapping.pointer("/_meta/vitrina")?.clone()).ok()
    }
}

/// The indexes of a pattern, hidden and closed ones too, each with its mark.
pub(super) async fn marks(client: &Client, wanted: &str) -> Result<BTreeMap<String, Option<Mark>>> {
    let path = format!("{}/_mapping?expand_wildcards=all", pattern(wanted));
    let found: BTreeMap<String, Value> = client.find(&path).await?.unwrap_or_default();
    Ok(found.into_iter().map(|(index, told)| (index, Mark::of(&told["mappings"]))).collect())
}

/// Of these indexes those that this installation has created.
pub(super) async fn created_by(client: &Client, wanted: &str, installation: Uuid) -> Result<Vec<String>> {
    let marks = marks(client, wanted).await?.into_iter();
    let ours = |mark: &Option<Mark>| mark.is_some_and(|mark| mark.installation == installation);
    Ok(marks.filter(|(_, mark)| ours(mark)).map(|(index, _)| index).collect())
}

/// An index that nobody has written a document to: nothing is lost with it, whoever created it.
pub(super) async fn is_empty(client: &Client, index: &str) -> Result<bool> {
    indexes::refresh(client, index).await?;
    Ok(indexes::count(client, index).await? == 0)
}

/// Swap guards of a pipeline that may be deleted: those that an older release has created carry no mark.
pub(super) async fn deletable_guards(
    client: &Client,
    wanted: &str,
    installation: Uuid,
) -> Result<Vec<String>> {
    let mut deletable = Vec::new();
    for (index, mark) in marks(client, wanted).await? {
        let proved = match mark {
            Some(mark) => mark.installation == installation,
            None => is_empty(client, &index).await?,
        };
        if proved {
            deletable.push(index);
        }
    }
    Ok(deletable)
}

/// Reads the mark of one index; `None` where it has none or is not there.
pub(super) async fn of_index(client: &Client, index: &str) -> Result<Option<Mark>> {
    Ok(marks(client, index).await?.remove(index).flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_leaves_what_others_note_in_a_mapping() {
        let mark =
            Mark { installation: Uuid::max(), pipeline: PipelineId(Uuid::nil()), load: Some(Uuid::max()) };
        let mapping = json!({"_meta": {"owner": "team", "vitrina": {"checksum": 1}}});
        let marked = mark.put_on(mapping);
        assert_eq!(
            (&marked["_meta"]["owner"], &marked["_meta"]["vitrina"]["checksum"]),
            (&json!("team"), &json!(1))
        );
        assert_eq!(Mark::of(&marked), Some(mark));
        assert_eq!(Mark::of(&json!({"_meta": {"vitrina": {"checksum": 1}}})), None, "of an older release");
    }
}
