//! What holds for a pipeline however its events follow one another: every state that can be
//! reached is visited, and random histories are held against a model of the runs they open.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::select;
use vitrina_core::Status::{Failed, Idle, PauseRequested, Paused, RunRequested, Running};
use vitrina_core::{Event, Lifecycle, OnActive, RunStatus};

const RUNNER_EVENTS: [Event; 6] =
    [Event::Claim, Event::BatchDone, Event::DataEnd, Event::Release, Event::Fail, Event::FailBeside(Idle)];

#[test]
fn the_changes_of_status_are_these_and_no_others() {
    let expected = BTreeSet::from([
        (Idle, RunRequested),
        (Idle, Paused),
        (RunRequested, Running),
        (RunRequested, Paused),
        (RunRequested, Idle),
        (Running, PauseRequested),
        (Running, Idle),
        (Running, RunRequested),
        (Running, Failed),
        (Running, Paused),
        (PauseRequested, Paused),
        (PauseRequested, Idle),
        (PauseRequested, Failed),
        (PauseRequested, RunRequested),
        (Paused, RunRequested),
        (Paused, Idle),
        (Failed, RunRequested),
        (Failed, Idle),
    ]);
    assert_eq!(Lifecycle::transitions(), expected);
}

#[test]
fn no_change_of_status_is_only_made_from_an_unreachable_state() {
    let made = reachable()
        .into_iter()
        .flat_map(|from| steps(from).map(move |next| (from.status, next.status)))
        .filter(|(old, new)| old != new);
    assert_eq!(made.collect::<BTreeSet<_>>(), Lifecycle::transitions());
}

#[test]
fn all_states_are_enumerated_once() {
    let states: Vec<Lifecycle> = Lifecycle::all().collect();
    let distinct: std::collections::HashSet<_> = states.iter().copied().collect();
    assert_eq!((states.len(), distinct.len()), (6 * 2 * 2 * 2 * 2, states.len()));
    assert!(reachable().iter().all(|state| distinct.contains(state)));
}

/// Not only from the states that can be reached: also from what a restore or a hand in the database leaves.
#[test]
fn no_state_is_a_dead_end() {
    for start in Lifecycle::all() {
        assert!(succeeds_by_ordinary_means(start), "stuck: {start:?}");
    }
}

#[test]
fn a_reachable_state_contradicts_nothing() {
    for state in reachable() {
        assert_consistent(state);
    }
}

#[test]
fn after_a_cancel_the_next_runner_event_ends_the_run_cancelled() {
    for state in reachable().into_iter().filter(|state| state.cancel_requested) {
        for event in RUNNER_EVENTS {
            let (next, effect) = state.apply(event).unwrap();
            let told = (next.status, effect.close_run, effect.open_run, next.cancel_requested);
            assert_eq!(told, (Idle, Some(RunStatus::Cancelled), false, false), "{event:?} in {state:?}");
        }
    }
}

#[test]
fn a_runner_without_a_lease_changes_nothing() {
    for state in reachable().into_iter().filter(|state| !state.status.is_leased()) {
        for event in RUNNER_EVENTS {
            let claims = event == Event::Claim && state.status == RunRequested;
            assert_eq!(state.apply(event).is_ok(), claims, "{event:?} in {state:?}");
        }
    }
}

#[test]
fn a_disabled_pipeline_opens_no_run_until_it_is_enabled() {
    for state in reachable().into_iter().filter(|state| !state.enabled) {
        for event in Event::ALL.into_iter().filter(|event| *event != Event::Enable) {
            let opens = state.apply(event).is_ok_and(|(_, effect)| effect.open_run);
            assert!(!opens, "{event:?} in {state:?}");
        }
    }
}

#[test]
fn asking_twice_is_asking_once() {
    let requests = [Event::Pause, Event::Cancel, Event::Disable, Event::Enable, Event::Run(OnActive::Join)];
    for state in reachable() {
        for event in requests {
            let Ok((once, _)) = state.apply(event) else { continue };
            let Ok((twice, effect)) = once.apply(event) else { continue };
            assert_eq!((twice, effect.open_run), (once, false), "{event:?} in {state:?}");
        }
    }
}

proptest! {
    #[test]
    fn any_history_opens_and_closes_runs_in_alternation(
        enabled: bool,
        events in prop::collection::vec(select(&Event::ALL[..]), 0..60),
    ) {
        let mut state = Lifecycle::new(Idle, enabled);
        let mut open_runs = 0;
        for event in events {
            let Ok((next, effect)) = state.apply(event) else { continue };
            if let Some(end) = effect.close_run {
                prop_assert!(!end.is_open(), "{event:?} closes a run as {end}");
                open_runs -= 1;
            }
            prop_assert!((0..=1).contains(&open_runs), "{event:?} in {state:?} closes a run that is not open");
            prop_assert!(!effect.join_run || open_runs == 1, "{event:?} in {state:?} joins no run");
            open_runs += i32::from(effect.open_run);
            prop_assert_eq!(open_runs, i32::from(next.status.is_active()), "{:?} in {:?}", event, state);
            assert_consistent(next);
            state = next;
        }
        prop_assert!(succeeds_by_ordinary_means(state), "stuck: {state:?}");
    }
}

fn assert_consistent(state: Lifecycle) {
    let Lifecycle { status, enabled, cancel_requested, paused_by_disable, pending } = state;
    assert!(enabled || !matches!(status, RunRequested | Running), "disabled, yet at work: {state:?}");
    assert!(!cancel_requested || status.is_leased(), "nobody is there to cancel: {state:?}");
    assert!(!paused_by_disable || matches!(status, PauseRequested | Paused), "no pause to resume: {state:?}");
    assert!(!(paused_by_disable && enabled && status == Paused), "nobody resumes it: {state:?}");
    assert!(!pending || !matches!(status, Idle | Failed), "a request waits for no run: {state:?}");
    assert!(!(pending && cancel_requested), "a request waits for a cancelled run: {state:?}");
}

/// A person who enables and runs, and a runner that claims and comes to the end, whatever answers
/// they get: three rounds are enough for an old pause, a cancel and a pending request.
fn succeeds_by_ordinary_means(start: Lifecycle) -> bool {
    let round = [Event::Enable, Event::Run(OnActive::Join), Event::Claim, Event::DataEnd];
    let mut state = start;
    for event in round.iter().cycle().take(3 * round.len()) {
        let Ok((next, effect)) = state.apply(*event) else { continue };
        if effect.close_run == Some(RunStatus::Success) && next.status == Idle {
            return true;
        }
        state = next;
    }
    false
}

fn reachable() -> Vec<Lifecycle> {
    let mut found = vec![Lifecycle::new(Idle, true), Lifecycle::new(Idle, false)];
    let mut visited = 0;
    while visited < found.len() {
        for next in steps(found[visited]) {
            if !found.contains(&next) {
                found.push(next);
            }
        }
        visited += 1;
    }
    found
}

fn steps(from: Lifecycle) -> impl Iterator<Item = Lifecycle> {
    Event::ALL.into_iter().filter_map(move |event| from.apply(event).ok()).map(|(next, _)| next)
}
