//! The showpiece, from an empty directory to two proven marts and back.

use nix::sys::signal::Signal;
use rstest::rstest;

use super::{Vitrina, place, stand_variables, vitrina};

fn demo(directory: &std::path::Path, arguments: &[&str]) -> Vitrina {
    let mut all = vec!["demo", "--dir", directory.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    all.extend(arguments);
    vitrina(&all)
}

const SMALL: [&str; 4] = ["--films", "120", "--ratings", "600"];

#[test]
fn a_demo_proves_both_marts_a_second_one_reuses_it_and_clean_removes_it() {
    let (_parent, directory) = place();
    let once = [&SMALL[..], &["--once"]].concat();

    let first = demo(&directory, &once).ends(0);
    assert!(first.contains("(new)") && first.contains("sample cinema: 120 films, 600 ratings"), "{first}");
    assert!(first.contains("film_dim_full: 120 rows read, 120 written, 0 unchanged"), "{first}");
    assert!(first.contains("analytics.film_dim: 120 rows, equal to its source"), "{first}");
    assert!(first.contains("analytics.film_rating_agg: "), "{first}");
    assert!(first.contains("film_search: 120 rows read, 120 written"), "{first}");
    assert!(first.contains("analytics.film_search: 120 rows, equal to its source; "), "{first}");

    let path = directory.to_str().unwrap();
    let again = demo(&directory, &["--once", "--films", "7"]).output();
    let said = super::text(&again.stderr);
    assert!(said.contains("the cinema has 120 films already;"), "{said}");
    assert!(said.contains(&format!("demo --clean --dir {path}` first")), "{said}");
    assert!(!said.contains("filling") && !said.contains("terminating connection"), "{said}");

    let second = demo(&directory, &["--once"]).ends(0);
    assert!(second.contains("(reused, with the data of last time)"), "{second}");
    assert!(second.contains("film_dim_full: 120 rows read, 0 written, 120 unchanged"), "{second}");

    vitrina(&["demo", "--clean", "--dir", directory.to_str().unwrap()]).ends(0);
    assert!(!directory.exists());
    vitrina(&["demo", "--clean", "--dir", directory.to_str().unwrap()]).ends(0);
}

#[test]
fn a_demo_stays_for_its_visitors_until_it_is_told_to_stop() {
    let (_parent, directory) = place();
    let dot_env = "VITRINA_API_URL=http://127.0.0.1:1\nVITRINA_API_TOKEN=of_another_api\n";
    let mut running = demo(&directory, &SMALL).file(".env", dot_env).start();
    let printed = running.prints_until("Ctrl-C stops everything");
    assert!(printed.len() <= 15, "{printed:#?}");

    let suggested = printed.iter().filter(|line| line.starts_with("  VITRINA_API_URL="));
    let suggested: Vec<&String> = suggested.collect();
    assert_eq!(suggested.len(), 3, "{printed:#?}");
    let inside = printed.iter().find_map(|line| line.strip_prefix("look inside:")).unwrap();
    assert!(!inside.contains("URL") && inside.contains("psql -c"), "{inside}");
    for command in suggested.into_iter().map(String::as_str).chain([inside]) {
        let typed = running.shell(command);
        assert!(typed.status.success(), "{command}: {}", super::text(&typed.stderr));
    }
    let last = printed.last().unwrap();
    assert!(last.contains(&format!("demo --clean --dir {}`", directory.display())), "{last}");
    assert!(
        printed.iter().any(|line| line.contains("open to every program on this machine")),
        "{printed:#?}"
    );

    let error = demo(&directory, &["--once"]).refuses(5);
    assert!(error.contains("another demo uses"), "{error}");
    vitrina(&["demo", "--clean", "--dir", directory.to_str().unwrap()]).refuses(5);

    let api = printed.iter().find_map(|line| line.strip_prefix("API on ")?.split(',').next()).unwrap();
    assert!(printed.contains(&format!("in a browser: {api}/ui/")), "{printed:#?}");
    let doctor =
        vitrina(&["doctor"]).variables(&stand_variables(&directory)).variable("VITRINA_API_URL", api).ends(0);
    assert!(!doctor.contains("warn") && doctor.contains("its login cannot write"), "{doctor}");

    running.signal(if ignores_hangups() { Signal::SIGTERM } else { Signal::SIGHUP });
    running.ends(0);
    assert!(!directory.join("data/postmaster.pid").exists(), "the Postgres has been stopped");
    vitrina(&["demo", "--clean", "--dir", directory.to_str().unwrap()]).ends(0);
}

/// Tests under `nohup` do, and then so does all that they start.
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 1 != 0)
}

#[test]
fn a_demo_without_python_says_so_in_one_line_and_shows_the_rest() {
    let (parent, directory) = place();
    let once = [&SMALL[..], &["--once"]].concat();
    let shown = demo(&directory, &once).variable("PATH", parent.path()).output();
    let (printed, said) = (super::text(&shown.stdout), super::text(&shown.stderr));
    assert!(shown.status.success() && printed.contains("analytics.film_dim: 120 rows, equal"), "{said}");
    assert!(!printed.contains("film_search"), "{printed}");
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("film_search is left out")).collect();
    assert!(
        matches!(lines[..], [line] if line.contains("Python 3.10") && line.contains("python3")),
        "{said}"
    );

    let shown = demo(&directory, &["--once"]).ends(0);
    assert!(shown.contains("film_search: 120 rows read, 120 written"), "{shown}");
    demo(&directory, &["--once"]).variable("PATH", parent.path()).ends(0);
    let shown = demo(&directory, &["--once"]).ends(0);
    let again = shown.lines().find(|line| line.starts_with("film_search: ")).unwrap();
    assert!(again.contains(" 0 written"), "{shown}");
}

#[test]
fn a_demo_of_another_release_runs_its_function_over_all_films_again() {
    let (_parent, directory) = place();
    demo(&directory, &[&SMALL[..], &["--once"]].concat()).ends(0);
    let path = directory.to_str().unwrap();
    vitrina(&["demo", "postgres", "start", "--dir", path]).ends(0);
    let older = "update etl.etl_state set checkpoint = jsonb_set(checkpoint, '{code,film_search}', '\"older\"') where checkpoint ? 'code'";
    let changed = std::process::Command::new("psql")
        .args(["-c", older])
        .envs(stand_variables(&directory))
        .output()
        .unwrap();
    assert!(super::text(&changed.stdout).contains("UPDATE 1"), "{changed:?}");
    vitrina(&["demo", "postgres", "stop", "--dir", path]).ends(0);
    let shown = demo(&directory, &["--once"]).ends(0);
    assert!(shown.contains("film_search: 120 rows read, 0 written, 120 unchanged"), "{shown}");
}

#[test]
fn a_demo_whose_usual_port_is_taken_finds_another() {
    let (_parent, directory) = place();
    // Whoever holds it, this test or another program: it is taken.
    let _taken = std::net::TcpListener::bind("127.0.0.1:8080");
    let path = directory.to_str().unwrap();
    let printed = vitrina(&["demo", "--once", "--films", "1", "--dir", path]).ends(0);
    assert!(printed.contains("API on http://127.0.0.1:") && !printed.contains(":8080"), "{printed}");
}

#[test]
fn without_a_postgres_installation_the_demo_says_how_to_get_one() {
    let (parent, directory) = place();
    let error = demo(&directory, &["--once"]).variable("VITRINA_PG_BINDIR", parent.path()).refuses(4);
    assert!(error.contains("VITRINA_PG_BINDIR"), "{error}");
    assert!(!directory.exists(), "nothing is left behind");
}

#[rstest]
#[case("/dev/null/demo")]
#[case("/proc/demo")]
fn a_directory_that_cannot_be_used_is_named(#[case] directory: &str) {
    let error = demo(directory.as_ref(), &["--once"]).refuses(4);
    assert!(error.contains(directory) && error.contains("--dir"), "{error}");
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let (parent, _) = place();
    std::fs::write(parent.path().join("thesis.txt"), "years of work").unwrap();
    demo(parent.path(), &["--once"]).refuses(4);
    vitrina(&["demo", "--clean", "--dir", parent.path().to_str().unwrap()]).refuses(4);
    assert!(parent.path().join("thesis.txt").exists());
}
