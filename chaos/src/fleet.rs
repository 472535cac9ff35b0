//! The runners: real processes that are killed, stopped and woken. One of them, the keeper, is spared, so that
//! there is somebody who has no excuse.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::fault_schedule::FaultSchedule;
use crate::fixture::Fixture;
use crate::rng::Rng;

#[derive(Debug)]
pub struct Fleet {
    fixture: Fixture,
    schedule: FaultSchedule,
    runners: Vec<Runner>,
    started: u32,
    keeper: Option<String>,
    /// When a runner was first harmed, in whatever way. Kept when it is gone.
    disturbed: HashMap<String, SystemTime>,
    /// Since when the server has answered; `None` while it is away.
    server_since: Option<Instant>,
}

#[derive(Debug)]
struct Runner {
    name: String,
    child: Child,
    since: Instant,
    stopped: bool,
    log: PathBuf,
    /// How much of its log has been looked through.
    read: u64,
}

/// A process that the harness did not end, and what its log says last.
#[derive(Debug)]
pub struct Ended {
    pub name: String,
    pub last_words: String,
    pub excused: bool,
}

impl Fleet {
    pub fn start(fixture: &Fixture, schedule: &FaultSchedule) -> Result<Self> {
        let mut fleet = Self {
            fixture: fixture.clone(),
            schedule: schedule.clone(),
            runners: Vec::new(),
            started: 0,
            keeper: None,
            disturbed: HashMap::new(),
            server_since: Some(Instant::now()),
        };
        for _ in 0..schedule.runners {
            fleet.add()?;
        }
        fleet.change_keeper();
        Ok(fleet)
    }

    fn add(&mut self) -> Result<()> {
        self.started += 1;
        let name = format!("runner-{}", self.started);
        let child = self
            .fixture
            .command(&name, &["runner"])?
            .env("VITRINA_RUNNER_NAME", &name)
            // By this the triggers of the harness know whose session they are in.
            .env("VITRINA_DATABASE_URL", format!("{}?options=-c%20chaos.runner%3D{name}", self.fixture.url))
            .env("VITRINA_RUNNER_LEASE", format!("{}ms", self.schedule.lease.as_millis()))
            .env("VITRINA_RUNNER_POLL_INTERVAL", "100ms")
            .env(
                "VITRINA_CONNECTIONS_MARTS_URL",
                self.fixture.marts_url(self.schedule.own_logins.then_some(self.started)),
            )
            .spawn()?;
        if self.server_since.is_none() {
            self.disturbed.insert(name.clone(), SystemTime::now());
        }
        let log = self.fixture.log(&name);
        self.runners.push(Runner { name, child, since: Instant::now(), stopped: false, log, read: 0 });
        Ok(())
    }

    /// The youngest takes over: those who lived through a restart have an excuse.
    pub fn change_keeper(&mut self) {
        let unharmed = |runner: &&Runner| !runner.stopped && !self.disturbed.contains_key(&runner.name);
        self.keeper = self.runners.iter().rev().find(unharmed).map(|runner| runner.name.clone());
    }

    fn disturb(&mut self, name: &str) {
        self.disturbed.entry(name.to_owned()).or_insert_with(SystemTime::now);
    }

    /// One that is at work, as a rule: harm to the idle proves little.
    fn pick(&self, at_work: &[String], rng: &mut Rng) -> Option<String> {
        let spared = |runner: &&Runner| !runner.stopped && self.keeper.as_ref() != Some(&runner.name);
        let names: Vec<_> = self.runners.iter().filter(spared).map(|runner| runner.name.clone()).collect();
        let busy: Vec<_> = names.iter().filter(|name| at_work.contains(name)).cloned().collect();
        let from = if busy.is_empty() || rng.share() < 0.2 { names } else { busy };
        rng.pick(&from).cloned()
    }

    /// `kill -9`, and another one under a fresh name.
    pub fn kill(&mut self, at_work: &[String], rng: &mut Rng) -> Result<bool> {
        let Some(name) = self.pick(at_work, rng) else { return Ok(false) };
        self.kill_this(&name)
    }

    /// The same for this one, if it is still there.
    pub fn kill_this(&mut self, name: &str) -> Result<bool> {
        self.disturb(name);
        let Some(place) = self.runners.iter().position(|runner| runner.name == name) else {
            return Ok(false);
        };
        let mut runner = self.runners.remove(place);
        runner.child.kill()?;
        runner.child.wait()?;
        self.add()?;
        if self.keeper.is_none() {
            self.change_keeper();
        }
        Ok(true)
    }

    pub fn stop(&mut self, at_work: &[String], rng: &mut Rng) -> Option<String> {
        let name = self.pick(at_work, rng)?;
        self.stop_this(&name).then_some(name)
    }

    /// Until it is woken.
    pub fn stop_this(&mut self, name: &str) -> bool {
        self.disturb(name);
        let Some(runner) = self.runners.iter_mut().find(|runner| runner.name == name) else { return false };
        runner.stopped = kill(runner.pid(), Signal::SIGSTOP).is_ok();
        true
    }

    /// The runner that has this socket, unless it is to be spared or stopped already.
    pub fn holder_of(&self, socket: &str) -> Option<String> {
        let runner = self.runners.iter().find(|runner| !runner.stopped && runner.holds(socket))?;
        (self.keeper.as_ref() != Some(&runner.name)).then(|| runner.name.clone())
    }

    pub fn wake(&mut self, name: &str) {
        if let Some(runner) = self.runners.iter_mut().find(|runner| runner.name == name) {
            runner.stopped = false;
            kill(runner.pid(), Signal::SIGCONT).ok();
        }
    }

    pub fn wake_all(&mut self) {
        let names: Vec<_> = self.runners.iter().map(|runner| runner.name.clone()).collect();
        names.iter().for_each(|name| self.wake(name));
    }

    pub fn server_goes(&mut self) {
        self.server_since = None;
        self.keeper = None;
        let names: Vec<_> = self.runners.iter().map(|runner| runner.name.clone()).collect();
        names.iter().for_each(|name| self.disturb(name));
    }

    /// Whoever was started meanwhile has an excuse, so the keeper is a new one.
    pub fn server_comes(&mut self) -> Result<()> {
        self.server_since = Some(Instant::now());
        self.add()?;
        self.change_keeper();
        let oldest = self.runners.iter().position(|runner| !runner.stopped).context("one that runs")?;
        let mut runner = self.runners.remove(oldest);
        runner.child.kill()?;
        runner.child.wait()?;
        Ok(())
    }

    /// The runner that holds this end of a connection to the server, unless it is to be spared. A session of a runner that
    /// is not found is left alone: its runner would be taken for one that was not harmed.
    pub fn disturb_peer(&mut self, port: u16, application: &str) -> bool {
        let Some(socket) = socket_of(port) else { return false };
        let found =
            self.runners.iter().find(|runner| runner.holds(&socket)).map(|runner| runner.name.clone());
        match found {
            Some(name) if self.keeper.as_ref() == Some(&name) => false,
            Some(name) => {
                self.disturb(&name);
                true
            }
            None => application.starts_with("vitrina-api"),
        }
    }

    /// Takes note that this runner is harmed, unless it is to be spared; answers which sockets are its own.
    pub fn disturb_by_name(&mut self, name: &str) -> Option<Vec<String>> {
        if self.keeper.as_deref() == Some(name) {
            return None;
        }
        self.disturb(name);
        self.runners.iter().find(|runner| runner.name == name && !runner.stopped).map(Runner::sockets)
    }

    /// How long the keeper has had both itself and a server.
    pub fn healthy_for(&self) -> Option<Duration> {
        let keeper = self.runners.iter().find(|runner| self.keeper.as_ref() == Some(&runner.name))?;
        Some(keeper.since.max(self.server_since?).elapsed())
    }

    /// Unharmed up to this moment.
    pub fn has_no_excuse(&self, name: &str, at: SystemTime) -> bool {
        self.disturbed.get(name).is_none_or(|harmed| *harmed > at)
    }

    /// Lines of unharmed runners that say they lost a lease.
    pub fn lost_leases(&mut self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for runner in &mut self.runners {
            if self.disturbed.contains_key(&runner.name) {
                continue;
            }
            let text = runner.new_lines().unwrap_or_default();
            let lost = text.lines().filter(|line| line.contains("the lease is lost"));
            found.extend(lost.map(|line| (runner.name.clone(), line.to_owned())));
        }
        found
    }

    /// Takes note of processes that ended by themselves, and starts others in their place. Without a server all do.
    pub fn replace_ended(&mut self) -> Result<Vec<Ended>> {
        let mut ended = Vec::new();
        if self.server_since.is_none() {
            return Ok(ended);
        }
        let mut place = 0;
        while place < self.runners.len() {
            if self.runners[place].child.try_wait()?.is_none() {
                place += 1;
                continue;
            }
            let runner = self.runners.remove(place);
            let log = fs::read_to_string(&runner.log).unwrap_or_default();
            let last_words = log.lines().rev().take(3).collect::<Vec<_>>().join(" | ");
            let excused = self.disturbed.contains_key(&runner.name);
            ended.push(Ended { name: runner.name, last_words, excused });
            self.add()?;
        }
        if !ended.is_empty() && self.healthy_for().is_none() {
            self.change_keeper();
        }
        Ok(ended)
    }

    pub fn started(&self) -> u32 {
        self.started
    }
}

impl Runner {
    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    fn holds(&self, socket: &str) -> bool {
        self.sockets().iter().any(|held| held == socket)
    }

    fn sockets(&self) -> Vec<String> {
        let Ok(open) = fs::read_dir(format!("/proc/{}/fd", self.child.id())) else { return Vec::new() };
        let links = open.flatten().filter_map(|file| fs::read_link(file.path()).ok());
        links
            .map(|link| link.to_string_lossy().into_owned())
            .filter(|link| link.starts_with("socket:"))
            .collect()
    }

    fn new_lines(&mut self) -> Result<String> {
        let mut log = fs::File::open(&self.log)?;
        log.seek(SeekFrom::Start(self.read))?;
        let mut text = String::new();
        self.read += log.read_to_string(&mut text)? as u64;
        Ok(text)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for runner in &mut self.runners {
            runner.child.kill().ok();
            runner.child.wait().ok();
        }
    }
}

/// `socket:[…]` of a local TCP port, as /proc shows open files. A connection that has ended stays in the table for a while,
/// without a socket, and its port may be in use again.
pub(crate) fn socket_of(port: u16) -> Option<String> {
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let local = format!("0100007F:{port:04X}");
    let mut inodes = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(9).copied().filter(|_| fields[1] == local)
    });
    inodes.find(|inode| *inode != "0").map(|inode| format!("socket:[{inode}]"))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::os::fd::AsRawFd;

    use tokio::net::{TcpListener, TcpSocket, TcpStream};

    use super::*;

    async fn connect_from(port: u16, to: &TcpListener) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
        socket.connect(to.local_addr().unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn a_port_leads_to_the_socket_that_has_it_now_and_not_to_a_connection_that_has_ended() {
        let [before, now] = [
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
        ];
        for _ in 0..16 {
            let ended = connect_from(0, &before).await;
            let port = ended.local_addr().unwrap().port();
            let (mut peer, _) = before.accept().await.unwrap();
            drop(ended);
            tokio::io::copy(&mut peer, &mut tokio::io::sink()).await.unwrap();
            drop(peer);
            let open = connect_from(port, &now).await;
            let socket = fs::read_link(format!("/proc/self/fd/{}", open.as_raw_fd())).unwrap();
            assert_eq!(socket_of(port).as_deref(), socket.to_str());
        }
    }
}
