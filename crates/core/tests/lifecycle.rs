//! DESIGN §5's table, cell by cell. A state is written as its status and flags (`RUNNING pending`),
//! an answer as the state it leads to and what becomes of runs, or as the code of its refusal.

use rstest::rstest;
use vitrina_core::{Effect, Event, Lifecycle, OnActive, Refusal, Status};

const JOIN: Event = Event::Run(OnActive::Join);
const AFTER: Event = Event::Run(OnActive::After);
const REJECT: Event = Event::Run(OnActive::Reject);

const DISABLED: &str = "409 pipeline.disabled";
const ACTIVE: &str = "409 pipeline.active";
const PAUSING: &str = "409 pipeline.pausing";
const CANCELLING: &str = "409 pipeline.cancelling";
const HAS_FAILED: &str = "409 pipeline.failed";
const IS_IDLE: &str = "409 pipeline.idle";
/// The table's dash: no runner can be here.
const LOST: &str = "409 lease.lost";
const CANCELLED: &str = "IDLE, closes CANCELLED";
const FAILED: &str = "FAILED, closes FAILED";
const OPENED: &str = "RUN_REQUESTED, opens";

#[rstest]
#[case(JOIN, [OPENED, "RUN_REQUESTED, joins", "RUNNING, joins", PAUSING, OPENED, OPENED])]
#[case(AFTER, [OPENED, "RUN_REQUESTED pending", "RUNNING pending", PAUSING, OPENED, OPENED])]
#[case(REJECT, [OPENED, ACTIVE, ACTIVE, PAUSING, OPENED, OPENED])]
#[case(Event::ScheduleDue, [OPENED, "RUN_REQUESTED", "RUNNING pending", "PAUSE_REQUESTED", "PAUSED", "FAILED"])]
#[case(Event::Pause, ["PAUSED", "PAUSED, closes PAUSED", "PAUSE_REQUESTED", "PAUSE_REQUESTED", "PAUSED", HAS_FAILED])]
#[case(Event::Cancel, [IS_IDLE, CANCELLED, "RUNNING cancelling", "PAUSE_REQUESTED cancelling", "IDLE", "IDLE"])]
#[case(Event::Disable, ["IDLE disabled", "IDLE disabled, closes CANCELLED", "PAUSE_REQUESTED disabled by-disable",
    "PAUSE_REQUESTED disabled", "PAUSED disabled", "FAILED disabled"])]
#[case(Event::Enable, ["IDLE", "RUN_REQUESTED", "RUNNING", "PAUSE_REQUESTED", "PAUSED", "FAILED"])]
#[case(Event::Claim, [LOST, "RUNNING", "RUNNING", "PAUSED, closes PAUSED", LOST, LOST])]
#[case(Event::BatchDone, [LOST, LOST, "RUNNING", "PAUSED, closes PAUSED", LOST, LOST])]
#[case(Event::DataEnd, [LOST, LOST, "IDLE, closes SUCCESS", "PAUSED, closes SUCCESS", LOST, LOST])]
#[case(Event::Release, [LOST, LOST, "RUN_REQUESTED", "PAUSED, closes PAUSED", LOST, LOST])]
#[case(Event::Fail, [LOST, LOST, FAILED, FAILED, LOST, LOST])]
#[case(Event::FailBeside(Status::Idle), [LOST, LOST, "IDLE, closes FAILED", "PAUSED, closes FAILED", LOST, LOST])]
#[case(Event::FailBeside(Status::Paused), [LOST, LOST, "PAUSED, closes FAILED", "PAUSED, closes FAILED", LOST, LOST])]
#[case(Event::FailBeside(Status::Failed), [LOST, LOST, FAILED, FAILED, LOST, LOST])]
fn every_event_in_every_status(#[case] event: Event, #[case] answers: [&str; 6]) {
    let columns = ["IDLE", "RUN_REQUESTED", "RUNNING", "PAUSE_REQUESTED", "PAUSED", "FAILED"];
    holds(event, columns, answers);
}

#[rstest]
#[case(JOIN, [DISABLED; 4])]
#[case(AFTER, [DISABLED; 4])]
#[case(REJECT, [DISABLED; 4])]
#[case(Event::ScheduleDue, ["IDLE disabled", "PAUSE_REQUESTED disabled", "PAUSED disabled", "FAILED disabled"])]
#[case(Event::Pause, ["PAUSED disabled", "PAUSE_REQUESTED disabled", "PAUSED disabled", HAS_FAILED])]
#[case(Event::Cancel, [IS_IDLE, "PAUSE_REQUESTED disabled cancelling", "IDLE disabled", "IDLE disabled"])]
#[case(Event::Disable, ["IDLE disabled", "PAUSE_REQUESTED disabled", "PAUSED disabled", "FAILED disabled"])]
#[case(Event::Enable, ["IDLE", "PAUSE_REQUESTED", "PAUSED", "FAILED"])]
#[case(Event::Claim, [LOST, "PAUSED disabled, closes PAUSED", LOST, LOST])]
#[case(Event::BatchDone, [LOST, "PAUSED disabled, closes PAUSED", LOST, LOST])]
#[case(Event::DataEnd, [LOST, "PAUSED disabled, closes SUCCESS", LOST, LOST])]
#[case(Event::Release, [LOST, "PAUSED disabled, closes PAUSED", LOST, LOST])]
#[case(Event::Fail, [LOST, "FAILED disabled, closes FAILED", LOST, LOST])]
#[case(Event::FailBeside(Status::Idle), [LOST, "PAUSED disabled, closes FAILED", LOST, LOST])]
fn a_disabled_pipeline_takes_no_new_work(#[case] event: Event, #[case] answers: [&str; 4]) {
    holds(
        event,
        ["IDLE disabled", "PAUSE_REQUESTED disabled", "PAUSED disabled", "FAILED disabled"],
        answers,
    );
}

/// Columns: the pause is under way; it has been reached; `enable` came while it was under way.
#[rstest]
#[case(JOIN, [DISABLED, DISABLED, PAUSING])]
#[case(AFTER, [DISABLED, DISABLED, PAUSING])]
#[case(REJECT, [DISABLED, DISABLED, PAUSING])]
#[case(Event::ScheduleDue, ["PAUSE_REQUESTED disabled by-disable", "PAUSED disabled by-disable", "PAUSE_REQUESTED by-disable"])]
#[case(Event::Pause, ["PAUSE_REQUESTED disabled", "PAUSED disabled", "PAUSE_REQUESTED"])]
#[case(Event::Cancel, ["PAUSE_REQUESTED disabled cancelling by-disable", "IDLE disabled", "PAUSE_REQUESTED cancelling by-disable"])]
#[case(Event::Disable, ["PAUSE_REQUESTED disabled by-disable", "PAUSED disabled by-disable", "PAUSE_REQUESTED disabled by-disable"])]
#[case(Event::Enable, ["PAUSE_REQUESTED by-disable", OPENED, "PAUSE_REQUESTED by-disable"])]
#[case(Event::Claim, ["PAUSED disabled by-disable, closes PAUSED", LOST, "RUN_REQUESTED, closes PAUSED, opens"])]
#[case(Event::BatchDone, ["PAUSED disabled by-disable, closes PAUSED", LOST, "RUN_REQUESTED, closes PAUSED, opens"])]
#[case(Event::DataEnd, ["PAUSED disabled by-disable, closes SUCCESS", LOST, "RUN_REQUESTED, closes SUCCESS, opens"])]
#[case(Event::Release, ["PAUSED disabled by-disable, closes PAUSED", LOST, "RUN_REQUESTED, closes PAUSED, opens"])]
#[case(Event::Fail, ["FAILED disabled, closes FAILED", LOST, FAILED])]
#[case(Event::FailBeside(Status::Idle), ["IDLE disabled, closes FAILED", LOST, "IDLE, closes FAILED"])]
fn a_pause_by_disable_is_resumed_by_enable(#[case] event: Event, #[case] answers: [&str; 3]) {
    let columns =
        ["PAUSE_REQUESTED disabled by-disable", "PAUSED disabled by-disable", "PAUSE_REQUESTED by-disable"];
    holds(event, columns, answers);
}

#[rstest]
#[case(JOIN, [CANCELLING, PAUSING])]
#[case(AFTER, [CANCELLING, PAUSING])]
#[case(REJECT, [CANCELLING, PAUSING])]
#[case(Event::ScheduleDue, ["RUNNING cancelling", "PAUSE_REQUESTED cancelling"])]
#[case(Event::Pause, ["PAUSE_REQUESTED cancelling", "PAUSE_REQUESTED cancelling"])]
#[case(Event::Cancel, ["RUNNING cancelling", "PAUSE_REQUESTED cancelling"])]
#[case(Event::Disable, ["PAUSE_REQUESTED disabled cancelling by-disable", "PAUSE_REQUESTED disabled cancelling"])]
#[case(Event::Enable, ["RUNNING cancelling", "PAUSE_REQUESTED cancelling"])]
#[case(Event::Claim, [CANCELLED; 2])]
#[case(Event::BatchDone, [CANCELLED; 2])]
#[case(Event::DataEnd, [CANCELLED; 2])]
#[case(Event::Release, [CANCELLED; 2])]
#[case(Event::Fail, [CANCELLED; 2])]
#[case(Event::FailBeside(Status::Failed), [CANCELLED; 2])]
fn the_cancel_flag_wins_over_everything_that_comes_later(#[case] event: Event, #[case] answers: [&str; 2]) {
    holds(event, ["RUNNING cancelling", "PAUSE_REQUESTED cancelling"], answers);
}

#[rstest]
#[case(JOIN, ["RUN_REQUESTED pending, joins", "RUNNING pending, joins", PAUSING, "RUN_REQUESTED pending, opens"])]
#[case(AFTER, ["RUN_REQUESTED pending", "RUNNING pending", PAUSING, "RUN_REQUESTED pending, opens"])]
#[case(REJECT, [ACTIVE, ACTIVE, PAUSING, "RUN_REQUESTED pending, opens"])]
#[case(Event::ScheduleDue, ["RUN_REQUESTED pending", "RUNNING pending", "PAUSE_REQUESTED pending", "PAUSED pending"])]
#[case(Event::Pause, ["PAUSED pending, closes PAUSED", "PAUSE_REQUESTED pending", "PAUSE_REQUESTED pending", "PAUSED pending"])]
#[case(Event::Cancel, [CANCELLED, "RUNNING cancelling", "PAUSE_REQUESTED cancelling", "IDLE"])]
#[case(Event::Disable, ["IDLE disabled, closes CANCELLED", "PAUSE_REQUESTED disabled by-disable pending",
    "PAUSE_REQUESTED disabled pending", "PAUSED disabled pending"])]
#[case(Event::Enable, ["RUN_REQUESTED pending", "RUNNING pending", "PAUSE_REQUESTED pending", "PAUSED pending"])]
#[case(Event::Claim, ["RUNNING pending", "RUNNING pending", "PAUSED pending, closes PAUSED", LOST])]
#[case(Event::BatchDone, [LOST, "RUNNING pending", "PAUSED pending, closes PAUSED", LOST])]
#[case(Event::DataEnd, [LOST, "RUN_REQUESTED, closes SUCCESS, opens", "PAUSED pending, closes SUCCESS", LOST])]
#[case(Event::Release, [LOST, "RUN_REQUESTED pending", "PAUSED pending, closes PAUSED", LOST])]
#[case(Event::Fail, [LOST, FAILED, FAILED, LOST])]
#[case(Event::FailBeside(Status::Idle), [LOST, "RUN_REQUESTED, closes FAILED, opens", "PAUSED pending, closes FAILED", LOST])]
#[case(Event::FailBeside(Status::Paused), [LOST, "PAUSED pending, closes FAILED", "PAUSED pending, closes FAILED", LOST])]
fn a_pending_request_starts_at_data_end_and_outlives_a_pause(
    #[case] event: Event,
    #[case] answers: [&str; 4],
) {
    let columns = ["RUN_REQUESTED pending", "RUNNING pending", "PAUSE_REQUESTED pending", "PAUSED pending"];
    holds(event, columns, answers);
}

#[rstest]
#[case::a_failed_pipeline_runs_again("FAILED", &[JOIN, Event::Claim, Event::DataEnd], "IDLE, closes SUCCESS")]
#[case::pause_then_run_while_running_opens_no_second_run("RUNNING", &[Event::Pause, JOIN], PAUSING)]
#[case::a_crash_while_pausing_leaves_no_run_open("RUNNING", &[Event::Pause, Event::Claim], "PAUSED, closes PAUSED")]
#[case::a_crash_while_pausing_a_disabled_pipeline_too(
    "RUNNING", &[Event::Disable, Event::Claim], "PAUSED disabled by-disable, closes PAUSED")]
#[case::a_refused_request_does_not_fire_at_enable("IDLE disabled", &[JOIN, Event::Enable], "IDLE")]
#[case::nor_does_one_that_disable_cancelled("RUN_REQUESTED", &[Event::Disable, Event::Enable], "IDLE")]
#[case::a_pause_at_data_end_is_not_forgotten("RUNNING", &[Event::Pause, Event::DataEnd], "PAUSED, closes SUCCESS")]
#[case::disable_and_enable_in_one_batch_lose_no_run(
    "RUNNING", &[Event::Disable, Event::Enable, Event::BatchDone], "RUN_REQUESTED, closes PAUSED, opens")]
#[case::a_person_who_pauses_after_disable_wants_it_paused(
    "RUNNING", &[Event::Disable, Event::Pause, Event::BatchDone, Event::Enable], "PAUSED")]
#[case::cancel_after_disable_leaves_nothing_to_resume(
    "RUNNING", &[Event::Disable, Event::Cancel, Event::BatchDone, Event::Enable], "IDLE")]
#[case::cancel_drops_what_was_to_follow("RUNNING", &[AFTER, Event::Cancel, Event::DataEnd], CANCELLED)]
#[case::a_schedule_does_not_revive_a_failure("RUNNING", &[Event::ScheduleDue, Event::Fail, Event::ScheduleDue], "FAILED")]
#[case::a_released_run_is_the_same_run("RUNNING", &[Event::Release, Event::Claim], "RUNNING")]
fn what_went_wrong_elsewhere(#[case] start: &str, #[case] events: &[Event], #[case] last_answer: &str) {
    let mut state = state(start);
    let mut answer = String::new();
    for &event in events {
        let step = state.apply(event);
        answer = tell(step);
        state = step.map_or(state, |(next, _)| next);
    }
    assert_eq!(answer, last_answer);
}

fn holds<const N: usize>(event: Event, starts: [&str; N], answers: [&str; N]) {
    let given = starts.map(|start| tell(state(start).apply(event)));
    assert_eq!(given, answers, "{event:?} in {starts:?}");
}

fn state(text: &str) -> Lifecycle {
    let mut words = text.split_whitespace();
    let status: Status = words.next().and_then(|word| word.parse().ok()).expect("begins with a status");
    let mut state = Lifecycle::new(status, true);
    for word in words {
        match word {
            "disabled" => state.enabled = false,
            "cancelling" => state.cancel_requested = true,
            "by-disable" => state.paused_by_disable = true,
            "pending" => state.pending = true,
            other => panic!("no flag is called {other:?}"),
        }
    }
    state
}

fn tell(step: Result<(Lifecycle, Effect), Refusal>) -> String {
    let (next, effect) = match step {
        Ok(step) => step,
        Err(refusal) => return format!("409 {}", refusal.code()),
    };
    let flags = [
        (!next.enabled, " disabled"),
        (next.cancel_requested, " cancelling"),
        (next.paused_by_disable, " by-disable"),
        (next.pending, " pending"),
    ];
    let mut text = next.status.to_string();
    text.extend(flags.iter().filter(|(set, _)| *set).map(|(_, word)| *word));
    if let Some(run) = effect.close_run {
        text += &format!(", closes {run}");
    }
    text.extend(effect.open_run.then_some(", opens"));
    text.extend(effect.join_run.then_some(", joins"));
    text
}
