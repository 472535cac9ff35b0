//! What a function can find out about its runner. As root it could read everything: the runner is another user here.
#![cfg(target_os = "linux")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::Uid;
use tempfile::TempDir;
use vitrina_testbed::Database;

use super::{Running, Vitrina, forget_settings, vitrina};

/// Of nobody: numbers need no name.
const UNPRIVILEGED: u32 = 64_321;
const SECRET: &str = "spied-out-secret-of-the-runner";

/// Looks for the secret wherever a process may look for that of another one, and says which places have let it in.
const SPIES: &str = r#"
import ctypes, os
from vitrina import transform

SECRET = b"spied-out-" + b"secret-of-the-runner"

def reads(path):
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20)
    except OSError:
        return None

@transform
def spies(row: dict) -> dict:
    runner = os.getppid()
    seen = [name for name in ("environ", "maps", "auxv") if reads(f"/proc/{runner}/{name}")]
    for place in ("mem", "fd/0"):
        try:
            os.close(os.open(f"/proc/{runner}/{place}", os.O_RDONLY))
            seen.append(place)
        except OSError:
            pass
    try:
        os.listdir(f"/proc/{runner}/fd")
        seen.append("fd")
    except OSError:
        pass
    if ctypes.CDLL(None).ptrace(16, runner, None, None) == 0:
        seen.append("ptrace")
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if SECRET in (reads(f"/proc/{pid}/environ") or b"") or SECRET in (reads(f"/proc/{pid}/cmdline") or b""):
            seen.append(f"process {pid}")
    status = reads("/proc/self/status").decode()
    privileges = next(line for line in status.splitlines() if line.startswith("NoNewPrivs")).split()[1]
    print(f"seen {seen} as {os.getuid()} groups {os.getgroups()} no_new_privs {privileges} home {os.environ['HOME']}", flush=True)
    return row
"#;

const SPYING: &str = r#"
targets:
  - name: analytics.spied
    key: [id]
    create_if_missing: true
pipelines:
  - name: spying
    source_connection: cinema
    target_table: analytics.spied
    mode: full
    tasks:
      - { order_index: 1, task_type: SQL, body: "select id, title from content.film_work limit 1" }
      - { order_index: 2, task_type: PYTHON, body: spies }
"#;

/// What everybody may read: the program, the module, and a folder to be in.
struct Place {
    folder: TempDir,
    interpreter: PathBuf,
}

impl Place {
    /// An interpreter that every user may start: that of the tests may be in root's home.
    fn new() -> Option<Self> {
        let of_system = ["/usr/bin/python3", "/usr/local/bin/python3"].map(PathBuf::from);
        let interpreter = match Uid::effective().is_root() {
            true => of_system.into_iter().find(|python| python.exists()),
            false => Some(vitrina_testbed::python()),
        };
        let Some(interpreter) = interpreter else {
            eprintln!("SKIPPED: there is no python3 that every user may start");
            return None;
        };
        let open = Permissions::from_mode(0o755);
        let folder = tempfile::Builder::new().permissions(open.clone()).tempdir().unwrap();
        let place = Self { folder, interpreter };
        fs::copy(assert_cmd::cargo::cargo_bin!("vitrina"), place.path().join("vitrina")).unwrap();
        fs::write(place.path().join("spying.py"), SPIES).unwrap();
        fs::set_permissions(place.path().join("vitrina"), open).unwrap();
        Some(place)
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// `vitrina up`, with a password in its environment.
    fn up(&self, db: &Database) -> Command {
        let mut up = Command::new(self.path().join("vitrina"));
        forget_settings(&mut up);
        up.args(["up", "--listen", "127.0.0.1:0"]).current_dir(self.path());
        up.env("HOME", self.path()).env_remove("TMPDIR");
        up.env("VITRINA_DATABASE_URL", db.url()).env("VITRINA_CONNECTIONS_CINEMA_URL", db.url());
        up.env("VITRINA_CONNECTIONS_OTHER_URL", format!("postgres://reader:{SECRET}@localhost/other"));
        up.env("VITRINA_PYTHON_INTERPRETER", &self.interpreter);
        up.env("VITRINA_PYTHON_MODULES", "spying").env("VITRINA_PYTHON_PATH", self.path());
        up
    }
}

async fn cinema() -> Database {
    let db = Database::fresh().await;
    vitrina_cinema::migrate(db.url()).await.unwrap();
    vitrina_cinema::seed(db.url(), 3, 0).await.unwrap();
    db
}

/// What the function has said.
fn spied(mut up: Running) -> String {
    let api = format!("http://{}", up.is_up());
    let typed = |arguments: &[&str]| {
        let command: Vitrina = vitrina(arguments).variable("VITRINA_API_URL", &api);
        command.file("spying.yaml", SPYING).ends(0)
    };
    typed(&["apply", "spying.yaml", "--yes"]);
    typed(&["run", "spying"]);
    let said = up.says_until("python: seen ").pop().unwrap();
    said.split("python: ").nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn a_function_of_the_runners_user_reads_neither_its_environment_nor_its_memory() {
    let Some(place) = Place::new() else { return };
    let db = cinema().await;
    let mut up = place.up(&db);
    if Uid::effective().is_root() {
        up.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
    let said = spied(Running::of(up));
    assert!(said.starts_with("seen [] as "), "{said}");
    assert!(said.contains("no_new_privs 1"), "{said}");
    if Uid::effective().is_root() {
        assert!(said.contains(&format!("as {UNPRIVILEGED} ")), "{said}");
    }
}

#[tokio::test]
async fn functions_run_as_another_user_where_the_runner_is_root_and_told_so() {
    if !Uid::effective().is_root() {
        eprintln!("SKIPPED: only root may switch to another user");
        return;
    }
    let Some(place) = Place::new() else { return };
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    let db = cinema().await;
    let mut up = place.up(&db);
    up.env("VITRINA_PYTHON_USER", "nobody");
    let said = spied(Running::of(up));
    assert!(said.starts_with(&format!("seen [] as {} groups []", nobody.uid)), "{said}");
    assert!(said.contains(&format!("home {}", nobody.dir.display())), "{said}");
}

#[tokio::test]
async fn a_user_that_functions_cannot_run_as_is_refused_when_the_runner_starts() {
    let Some(place) = Place::new() else { return };
    let db = cinema().await;
    vitrina(&["migrate"]).variable("VITRINA_DATABASE_URL", db.url()).ends(0);
    let starts = |user: &str, uid: Option<u32>| {
        let mut runner = place.up(&db);
        runner.env("VITRINA_PYTHON_USER", user);
        if let Some(uid) = uid {
            runner.uid(uid).gid(uid);
        }
        let output = runner.output().unwrap();
        assert!(!output.status.success());
        super::text(&output.stderr)
    };
    let said = starts("no_such_user_here", None);
    assert!(said.contains("is no user here") && said.contains("\nhint: "), "{said}");
    if Uid::effective().is_root() {
        fs::set_permissions(place.path(), Permissions::from_mode(0o700)).unwrap();
        let said = starts("nobody", None);
        assert!(said.contains("python.user, where it is set, has to be able to read them"), "{said}");
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    }
    let said = starts("root", None);
    assert!(said.contains("python.user \"root\"") && said.contains("\nhint: "), "{said}");
    if Uid::effective().is_root() {
        let said = starts("nobody", Some(UNPRIVILEGED));
        assert!(said.contains("the runner is not root") && said.contains("\nhint: "), "{said}");
    }
}
