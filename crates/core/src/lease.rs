//! Proof that a runner owns a pipeline. Every write names it, and rolls back when it no longer holds.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::PipelineId;

/// Grows with every claim of a pipeline; the greatest one is the only one that may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseToken(pub i64);

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Drawn at random for every claim, so that equal tokens of a restored meta-store still differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Owner(pub Uuid);

impl Owner {
    pub fn draw() -> Self {
        Self(Uuid::new_v4())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    pub pipeline: PipelineId,
    pub owner: Owner,
    pub token: LeaseToken,
}

impl Lease {
    /// Names the sessions that work under this lease, so that a takeover can end them.
    /// Postgres cuts names at 63 bytes and loses Cyrillic: ids only.
    pub fn application_name(&self) -> String {
        format!("vitrina/{}/{}", self.pipeline, self.token)
    }
}

/// The lease that a target was acquired with last, as the target itself remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// None where an older release has acquired it.
    pub owner: Option<Owner>,
    pub token: LeaseToken,
}

impl Holder {
    /// The lease is newer than the holder, or the holder itself.
    pub fn yields_to(&self, lease: &Lease) -> bool {
        match self.owner {
            Some(owner) => owner == lease.owner || self.token < lease.token,
            None => self.token <= lease.token,
        }
    }
}

/// The leases that the meta-store has issued for a pipeline. A target whose holder is none of them was written by another
/// copy of the meta-store, or after the backup that this one was restored from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    pub owners: Vec<Owner>,
    /// A person has decided that this meta-store is the rightful one: any holder is accepted, once.
    #[serde(default)]
    pub adopts: bool,
}

impl Issued {
    /// More than these are cut down where a target is acquired.
    pub const MANY: usize = 100;
    /// So many of the newest stay.
    const KEPT: usize = 50;

    pub fn knows(&self, holder: Holder) -> bool {
        holder.owner.is_none_or(|owner| self.owners.contains(&owner))
    }

    /// Whether the meta-store has to be asked before any target is acquired.
    pub fn is_due(&self) -> bool {
        self.adopts || self.owners.len() > Self::MANY
    }

    /// The lease may acquire the target without asking the meta-store.
    pub fn covers(&self, lease: &Lease, holder: Option<Holder>) -> bool {
        !self.is_due() && holder.is_none_or(|holder| self.knows(holder) && holder.yields_to(lease))
    }

    /// Those that may be met at the target from now on.
    #[must_use]
    pub fn cut_down(&self, holder: Option<Holder>) -> Self {
        let mut owners = self.owners.clone();
        if owners.len() > Self::MANY {
            owners.drain(..owners.len() - Self::KEPT);
        }
        let seen = holder.and_then(|holder| holder.owner).filter(|seen| !owners.contains(seen));
        Self { owners: seen.into_iter().chain(owners).collect(), adopts: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(token: i64) -> Lease {
        Lease { pipeline: PipelineId(Uuid::nil()), owner: Owner::draw(), token: LeaseToken(token) }
    }

    fn holder(lease: &Lease) -> Holder {
        Holder { owner: Some(lease.owner), token: lease.token }
    }

    #[test]
    fn an_issued_lease_gives_way_to_a_newer_one_and_to_no_other_of_the_same_token() {
        let (old, same, new) = (lease(7), lease(7), lease(8));
        let issued = Issued { owners: vec![old.owner, same.owner, new.owner], adopts: false };
        assert!(issued.covers(&new, Some(holder(&old))) && issued.covers(&old, Some(holder(&old))));
        assert!(!issued.covers(&same, Some(holder(&old))) && !issued.covers(&old, Some(holder(&new))));
        assert!(!issued.covers(&new, Some(holder(&lease(1)))), "issued by another copy");
        assert!(issued.covers(&old, Some(Holder { owner: None, token: old.token })), "of an older release");
        assert!(issued.covers(&old, None));
    }

    #[test]
    fn a_long_list_keeps_the_holder_and_the_newest() {
        let leases: Vec<_> = (0..150).map(lease).collect();
        let issued = Issued { owners: leases.iter().map(|lease| lease.owner).collect(), adopts: true };
        let cut = issued.cut_down(Some(holder(&leases[3])));
        assert_eq!(cut.owners.len(), 51);
        assert!(cut.knows(holder(&leases[3])) && cut.knows(holder(&leases[149])) && !cut.adopts);
    }
}
