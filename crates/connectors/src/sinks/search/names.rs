//! What Vitrina calls its indexes and aliases at a search server. All of them begin outside of what users name theirs, and
//! are taken apart to the last letter before one is deleted.

use uuid::Uuid;
use vitrina_core::{Lease, LeaseToken, PipelineId};

/// Who owns which index, one document a target.
pub(super) const CONTROL: &str = "vitrina-control";

/// Hidden and always empty: where write aliases are moved to when they are closed.
pub(super) const CLOSED: &str = "vitrina-closed";

/// The names of one pipeline's writing to one index.
#[derive(Debug, Clone)]
pub(super) struct Names {
    /// What readers search.
    pub(super) index: String,
    pipeline: String,
}

impl Names {
    pub(super) fn new(index: &str, pipeline: PipelineId) -> Self {
        Self { index: index.to_owned(), pipeline: pipeline.0.simple().to_string()[24..].to_owned() }
    }

    /// The index that a load fills.
    pub(super) fn physical(&self, load: Uuid) -> String {
        format!("{}{}", self.physical_prefix(), tail(load))
    }

    fn physical_prefix(&self) -> String {
        format!("vitrina-{}-{}-", self.index, self.pipeline)
    }

    /// A pattern that finds them all, and more.
    pub(super) fn physical_pattern(&self) -> String {
        format!("{}*", self.physical_prefix())
    }

    /// The same for those of whichever pipeline.
    pub(super) fn anybodys_pattern(&self) -> String {
        format!("vitrina-{}-*", self.index)
    }

    /// One that several pipelines write to: the same for all of them.
    pub(super) fn shared(&self) -> String {
        format!("vitrina-{}-{}-{}", self.index, "0".repeat(8), "0".repeat(12))
    }

    /// An index that was created for this load; a clone of it carries the same mark under another name.
    pub(super) fn is_of_load(name: &str, load: Uuid) -> bool {
        name.ends_with(tail(load).as_str())
    }

    pub(super) fn is_physical(&self, name: &str) -> bool {
        name.strip_prefix(&self.physical_prefix()).is_some_and(|rest| is_hex(rest, 12))
    }

    /// The index of whichever pipeline.
    pub(super) fn is_vitrinas(&self, name: &str) -> bool {
        let rest = name.strip_prefix("vitrina-").and_then(|rest| rest.strip_prefix(&self.index));
        let parts = rest.and_then(|rest| rest.strip_prefix('-')).and_then(|rest| rest.split_once('-'));
        parts.is_some_and(|(pipeline, load)| is_hex(pipeline, 8) && is_hex(load, 12))
    }

    /// What a lease writes through, and is fenced by the loss of. Never the same twice: what was sent through one that is
    /// closed by now must not come through another.
    pub(super) fn write_alias(&self, token: LeaseToken) -> String {
        format!("{}{token}~{:08x}", self.door_prefix(), fastrand::u32(..))
    }

    /// The token of a write alias; an older release has named them by it alone, or by it and a load.
    pub(super) fn token_of(&self, alias: &str) -> Option<i64> {
        alias.strip_prefix(&self.door_prefix())?.split('~').next()?.parse().ok()
    }

    /// Where several pipelines write to an index: on it as soon as this one has.
    pub(super) fn evidence(&self) -> String {
        format!("{}written", self.door_prefix())
    }

    fn door_prefix(&self) -> String {
        format!("{}~{}~", self.index, self.pipeline)
    }

    pub(super) fn door_pattern(&self) -> String {
        format!("{}*", self.door_prefix())
    }

    pub(super) fn is_door(&self, name: &str) -> bool {
        name.starts_with(&self.door_prefix())
    }

    /// An empty index that is there as long as its token may change aliases.
    /// Never the same twice: one whose creation was delayed is not taken for one that was removed.
    pub(super) fn marker(&self, lease: &Lease) -> String {
        format!("{}{}-{:08x}", self.marker_prefix(), lease.token, fastrand::u32(..))
    }

    fn marker_prefix(&self) -> String {
        format!("vitrina-marker-{}-{}-", self.index, self.pipeline)
    }

    pub(super) fn marker_pattern(&self) -> String {
        format!("{}*", self.marker_prefix())
    }

    pub(super) fn is_marker(&self, name: &str) -> bool {
        let parts = name.strip_prefix(&self.marker_prefix()).and_then(|rest| rest.split_once('-'));
        parts.is_some_and(|(token, nonce)| token.parse::<i64>().is_ok() && is_hex(nonce, 8))
    }
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The random end of a load's id.
fn tail(load: Uuid) -> String {
    load.simple().to_string()[20..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vitrina_core::Owner;

    fn names(index: &str) -> Names {
        Names::new(index, PipelineId(Uuid::from_u128(0xabcd)))
    }

    #[test]
    fn an_index_whose_name_continues_another_one_is_not_taken_for_it() {
        let (film, longer) = (names("film"), names("film-0000abcd"));
        let load = Uuid::from_u128(7);
        assert!(film.is_physical(&film.physical(load)) && longer.is_physical(&longer.physical(load)));
        assert!(!film.is_physical(&longer.physical(load)));
        assert!(film.is_vitrinas(&film.shared()) && !film.is_vitrinas(&longer.shared()));
        assert!(!film.is_physical("vitrina-film-0000abcd-mine"));
    }

    #[test]
    fn doors_and_markers_are_told_from_what_is_like_them() {
        let names = names("film");
        let lease =
            Lease { pipeline: PipelineId(Uuid::nil()), owner: Owner(Uuid::nil()), token: LeaseToken(41) };
        let marker = names.marker(&lease);
        assert!(names.is_marker(&marker) && !names.is_marker(&format!("{marker}0")));
        let alias = names.write_alias(LeaseToken(4));
        assert!(names.is_door(&alias) && names.token_of(&alias) == Some(4));
        assert!(names.is_door(&names.evidence()) && names.token_of(&names.evidence()).is_none());
        assert!(!names.is_door("film~00000000~4"));
    }

    #[test]
    fn the_longest_name_of_an_index_leaves_room_for_all_that_is_added() {
        let names = names(&"a".repeat(200));
        let longest = names.write_alias(LeaseToken(i64::from(u32::MAX)));
        assert!(longest.len() <= 255 && names.physical(Uuid::max()).len() <= 255);
    }
}
