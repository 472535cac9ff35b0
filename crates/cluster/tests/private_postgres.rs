//! The promises of a private Postgres, kept with the real thing, as root and as an ordinary user.
#![expect(clippy::unwrap_used, reason = "verbs of tests may fail as loudly as tests")]

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use tokio_postgres::NoTls;
use vitrina_cluster::{Cluster, Error, Options, remove};

/// A place for one server, removed with it at the end of the test.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("vitrina cluster-{}-{number}", std::process::id())))
    }

    fn options(&self) -> Options {
        let settings = vec![("fsync".to_owned(), "off".to_owned())];
        Options { superuser: "cinema".to_owned(), settings, ..Options::new(&self.0) }
    }

    fn start(&self) -> Cluster {
        Cluster::start(&self.options()).unwrap()
    }

    fn postmaster(&self) -> Pid {
        let pidfile = fs::read_to_string(self.0.join("data/postmaster.pid")).unwrap();
        Pid::from_raw(pidfile.lines().next().unwrap().parse().unwrap())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        remove(&self.0).unwrap();
    }
}

/// Runs statements and gives back the first value of the last.
fn query(cluster: &Cluster, sql: &str) -> Option<String> {
    try_query(&cluster.url("postgres"), sql).unwrap()
}

fn try_query(url: &str, sql: &str) -> Result<Option<String>, tokio_postgres::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        let work = async move { client.simple_query(sql).await };
        let (messages, _) = tokio::join!(work, connection);
        Ok(messages?.iter().rev().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        }))
    })
}

/// Does something that ends the server and waits until a session that is open notices.
fn until_cut_off(url: &str, end: impl FnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (_client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        end();
        assert!(connection.await.is_err());
    });
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_new_directory_becomes_a_server_that_answers_its_superuser() {
    let place = Place::new();
    let cluster = place.start();
    assert!(!cluster.was_running());
    assert_eq!(
        query(&cluster, "select current_user || ' ' || rolsuper from pg_roles where rolname = current_user"),
        Some("cinema true".to_owned())
    );
    assert_eq!(query(&cluster, "show server_encoding"), Some("UTF8".to_owned()));
    assert_eq!(query(&cluster, "show data_checksums"), Some("on".to_owned()));
    assert_eq!(query(&cluster, "show listen_addresses"), Some("127.0.0.1".to_owned()));
}

#[test]
fn a_second_start_finds_the_server_running() {
    let place = Place::new();
    let (first, second) = (place.start(), place.start());
    assert!(second.was_running());
    assert_eq!(first.url("postgres"), second.url("postgres"));
}

#[test]
fn two_starts_at_once_give_one_server() {
    let place = Place::new();
    let (one, other) = std::thread::scope(|scope| {
        let (one, other) = (scope.spawn(|| place.start()), scope.spawn(|| place.start()));
        (one.join().unwrap(), other.join().unwrap())
    });
    assert_eq!(one.port(), other.port());
    assert!(one.was_running() != other.was_running());
}

#[test]
fn data_port_and_password_survive_a_stop_and_a_start() {
    let place = Place::new();
    let cluster = place.start();
    query(&cluster, "create table film (title text); insert into film values ('Solaris')");
    let url = cluster.url("postgres");
    cluster.stop().unwrap();
    assert!(try_query(&url, "select 1").is_err());
    let cluster = place.start();
    assert!(!cluster.was_running());
    assert_eq!(cluster.url("postgres"), url);
    assert_eq!(query(&cluster, "select title from film"), Some("Solaris".to_owned()));
}

#[test]
fn a_killed_server_recovers_with_its_data() {
    let place = Place::new();
    let cluster = place.start();
    query(&cluster, "create table film (title text); insert into film values ('Stalker')");
    until_cut_off(&cluster.url("postgres"), || kill(place.postmaster(), Signal::SIGKILL).unwrap());
    assert_eq!(query(&place.start(), "select title from film"), Some("Stalker".to_owned()));
}

#[test]
fn an_interrupted_initdb_is_done_anew() {
    let place = Place::new();
    fs::create_dir_all(place.0.join("data.unfinished")).unwrap();
    fs::write(place.0.join("data.unfinished/PG_VERSION"), "15").unwrap();
    fs::write(place.0.join("vitrina-cluster"), "").unwrap();
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o711)).unwrap();
    assert_eq!(query(&place.start(), "select 1"), Some("1".to_owned()));
    assert!(!place.0.join("data.unfinished").exists());
}

#[test]
fn two_servers_live_side_by_side() {
    let (one, other) = (Place::new(), Place::new());
    let (one, other) = (one.start(), other.start());
    assert_ne!(one.port(), other.port());
    query(&one, "create table film ()");
    assert_eq!(query(&other, "select to_regclass('film')"), None);
}

#[test]
fn a_remembered_port_that_is_taken_is_replaced() {
    let place = Place::new();
    let cluster = place.start();
    let port = cluster.port();
    cluster.stop().unwrap();
    let _holder = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    let cluster = place.start();
    assert_ne!(cluster.port(), port);
    assert_eq!(query(&cluster, "select 1"), Some("1".to_owned()));
}

#[test]
fn a_port_that_was_asked_for_and_is_taken_is_an_error() {
    let place = Place::new();
    let holder = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = holder.local_addr().unwrap().port();
    let error = Cluster::start(&Options { port: Some(port), ..place.options() }).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("port {port} of 127.0.0.1 is taken\nhint: name a free port, or none to have one found")
    );
}

#[test]
fn a_running_server_does_not_move_to_another_port() {
    let place = Place::new();
    let port = place.start().port();
    let error = Cluster::start(&Options { port: Some(port ^ 1), ..place.options() }).unwrap_err();
    assert!(matches!(error, Error::OnOtherPort { port: found, .. } if found == port), "{error}");
}

#[test]
fn the_password_is_needed_and_never_printed() {
    let place = Place::new();
    let cluster = place.start();
    let password = fs::read_to_string(place.0.join("password")).unwrap();
    assert_eq!(mode(&place.0.join("password")), 0o600);
    assert_eq!(mode(&place.0) & 0o066, 0);
    assert!(cluster.url("postgres").contains(&password));
    assert!(!format!("{cluster:?}").contains(&password));
    let url = cluster.url("postgres").replace(&password, "wrong");
    let error = try_query(&url, "select 1").unwrap_err();
    assert_eq!(error.code().unwrap().code(), "28P01");
}

#[test]
fn settings_reach_the_server_whatever_they_hold() {
    let place = Place::new();
    let settings = vec![("cluster_name".to_owned(), r"it's \ 100%".to_owned())];
    let cluster = Cluster::start(&Options { settings, ..place.options() }).unwrap();
    assert_eq!(query(&cluster, "show cluster_name"), Some(r"it's \ 100%".to_owned()));
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let place = Place::new();
    let settings = vec![("no_such_setting".to_owned(), "1".to_owned())];
    let error = Cluster::start(&Options { settings, ..place.options() }).unwrap_err().to_string();
    assert!(error.contains("unrecognized configuration parameter \"no_such_setting\""), "{error}");
    assert!(error.lines().last().unwrap().starts_with("hint: the log of the server is "), "{error}");
}

#[test]
fn a_directory_that_cannot_be_created_is_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = Cluster::start(&Options::new(file.path().join("below"))).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot use {}", file.path().display())), "{error}");
    assert!(error.ends_with("hint: choose a directory that you can write to"), "{error}");
}

#[test]
fn a_directory_that_the_servers_user_cannot_enter_is_an_error() {
    if !Uid::effective().is_root() {
        return; // the server runs as we do, and enters what we enter
    }
    let private = fs::Permissions::from_mode(0o700);
    let closed = tempfile::Builder::new().permissions(private).tempdir().unwrap();
    let error = Cluster::start(&Options::new(closed.path().join("demo"))).unwrap_err();
    assert!(matches!(error, Error::NotReachable { .. }), "{error}");
}

#[test]
fn a_directory_of_someone_else_is_neither_used_nor_removed() {
    let foreign = tempfile::tempdir().unwrap();
    fs::write(foreign.path().join("thesis"), "years of work").unwrap();
    let error = Cluster::start(&Options::new(foreign.path())).unwrap_err();
    assert!(matches!(error, Error::NotOurs { .. }), "{error}");
    let error = remove(foreign.path()).unwrap_err();
    assert!(matches!(error, Error::NotOurs { .. }), "{error}");
    assert!(foreign.path().join("thesis").exists());
}

#[test]
fn removing_stops_the_server_and_leaves_nothing() {
    let place = Place::new();
    let url = place.start().url("postgres");
    remove(&place.0).unwrap();
    assert!(!place.0.exists());
    assert!(try_query(&url, "select 1").is_err());
    remove(&place.0).unwrap();
}

#[test]
fn a_server_that_dies_with_its_parent_leaves_nothing() {
    let place = Place::new();
    let cluster = Cluster::start(&Options { die_with_parent: true, ..place.options() }).unwrap();
    let url = cluster.url("postgres");
    cluster.stop().unwrap();
    assert!(!place.0.exists());
    assert!(try_query(&url, "select 1").is_err());
}

#[test]
fn dropping_a_server_that_dies_with_its_parent_ends_it() {
    let place = std::mem::ManuallyDrop::new(Place::new()); // the server's watchdog removes it
    let cluster = Cluster::start(&Options { die_with_parent: true, ..place.options() }).unwrap();
    until_cut_off(&cluster.url("postgres"), || drop(cluster));
}
