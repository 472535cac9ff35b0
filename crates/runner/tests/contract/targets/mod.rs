//! The kinds of targets that play the contract of sinks. A new kind brings a `Target` of its own and one line in
//! `of_every_target`.

pub(crate) mod memory;
pub(crate) mod postgres;
pub(crate) mod search;

use std::collections::BTreeMap;

use async_trait::async_trait;
use vitrina_runner::RunnerSettings;
use vitrina_testbed::Fault;

use crate::stage::Stage;

/// What a kind of target can do, or cannot and why.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Abilities {
    /// The code of a reject whose row the target itself refuses.
    pub(crate) refusal: &'static str,
    /// Batch sizes at which refused rows are looked for.
    pub(crate) batch_sizes: &'static [i32],
    /// A fault is played at one of so many requests: at all of them where that is quick.
    pub(crate) every: usize,
    /// `Err` has the code with which a comparison is refused, and why.
    pub(crate) compares: Result<(), (&'static str, &'static str)>,
    /// Level `hash` compares what is there; `Err` says what else.
    pub(crate) hashes_content: Result<(), &'static str>,
    /// Only rows that differ are written; `Err` says why not.
    pub(crate) writes_differences: Result<(), &'static str>,
    /// Figures of a run count a row once, however often its batch was sent; `Err` says why not.
    pub(crate) exact_figures: Result<(), &'static str>,
}

/// A target of films, of which the one with the note `x` is refused, behind something that can fail.
#[async_trait(?Send)]
pub(crate) trait Target: Send + Sync {
    const ABILITIES: Abilities;

    /// An empty target, described in the meta-store where it has to be.
    async fn create(stage: &Stage) -> Self
    where
        Self: Sized;

    /// As pipelines name it.
    fn name(&self) -> String;

    /// Lets a runner reach it, through whatever fails on demand.
    fn connect(&self, settings: &mut RunnerSettings);

    /// Titles that readers see, by id.
    async fn titles(&self, stage: &Stage) -> BTreeMap<String, String>;

    /// Somebody else changes a title, or adds a row.
    async fn put(&self, stage: &Stage, id: i32, title: &str);

    /// Somebody else deletes a row.
    async fn remove(&self, stage: &Stage, id: i32);

    /// Somebody else empties it.
    async fn empty(&self, stage: &Stage);

    /// Another target like it for rows of these columns, the first being their key; answers its name.
    async fn create_typed(&self, stage: &Stage, columns: &[(String, String)]) -> String;

    /// In that one somebody else copies a value from row 2 to row 1.
    async fn copy_value(&self, stage: &Stage, column: &str);

    /// The `nth` request of runners from now on meets this fault.
    fn play_at(&self, nth: usize, fault: Fault);

    /// How many requests have come since then.
    fn requests(&self) -> usize;
}

/// Tests of these behaviours, for every kind.
macro_rules! of_every_target {
    ($($behaviour:ident),* $(,)?) => {
        of_target!(postgres, $crate::targets::postgres::Beside, $($behaviour),*);
        of_target!(remote_postgres, $crate::targets::postgres::Remote, $($behaviour),*);
        of_target!(elasticsearch, $crate::targets::search::Elasticsearch, $($behaviour),*);
        of_target!(opensearch, $crate::targets::search::Opensearch, $($behaviour),*);
        of_target!(toy, $crate::targets::memory::Memory, $($behaviour),*);
    };
}

macro_rules! of_target {
    ($module:ident, $target:ty, $($behaviour:ident),*) => {
        mod $module {
            $(
                #[tokio::test]
                async fn $behaviour() {
                    super::$behaviour($crate::play::Play::<$target>::new().await).await;
                }
            )*
        }
    };
}
