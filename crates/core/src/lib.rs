//! The nouns and rules of Vitrina. No I/O: everything here is a value, a pure function or a trait.
//!
//! A batch travels one way: source → transforms → sink → checkpoint. `Source`, `Transform` and
//! `Sink` are its stations, `Batch`, `Scope` and `Commit` what travels, `Lifecycle` what may happen
//! to a pipeline meanwhile.

mod backfill;
mod batch;
mod checkpoint;
mod connector;
mod deletes;
mod edit;
mod error;
mod lease;
mod ledger;
mod lifecycle;
mod pipeline;
mod plan;
mod reconcile;
mod schedule;
mod shell;
mod status;
mod target;
pub mod values;
mod words;

pub use backfill::{Backfill, CursorRange};
pub use batch::{Batch, Commit, Counts, DOCUMENT_ID, Outcome, Reject, Scope, Timings, Written};
pub use checkpoint::{Checkpoint, Code, Decision, Load, LoadPath, MartTable, OnChange, Position, Resumption};
pub use connector::{Advice, Destination, Sink, Source, Transform};
pub use deletes::{Deletes, RowChange, Share};
pub use edit::Locked;
pub use error::{DIRECT, Error, ErrorKind, POOLED, REFUSED_OPTIONS, Remedy, Result};
pub use lease::{Holder, Issued, Lease, LeaseToken, Owner};
pub use ledger::{Committed, Entry, Ledger, OpenReject, Quote, Recognized, State};
pub use lifecycle::{Effect, Event, Lifecycle, OnActive, Refusal};
pub use pipeline::{
    BATCH_SIZES, Capture, FirstLoad, LONGEST_DESCRIPTION, LONGEST_TAG, MOST_TAGS, Mode, Pipeline, PipelineId,
    PipelineKind, ReadBy, RunId, Violation, Watch, is_tag, tag_rule,
};
pub use plan::{Task, TaskKind, TaskPlan};
pub use reconcile::{
    Cells, Difference, DifferenceKind, Figures, Findings, Level, ReconcileProgress, ReconcileStage,
    ReconcileStatus, ReconcileTrigger, SideFigures, Verdict,
};
pub use schedule::{NoSchedule, Schedule};
pub use shell::shell_word;
pub use status::{RunStatus, Status};
pub use target::{
    AliasRules, AllowedTargets, DocumentRules, Shared, Target, TargetName, TargetPart, is_alias_name,
    is_allowed_target, taken_aliases,
};
pub use words::UnknownWord;
