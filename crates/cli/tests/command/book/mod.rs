//! What the documentation tells people to type: executed as it stands, page by page, and held against what the page shows.

mod page;

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use sqlx::{Connection, PgConnection};
use tempfile::TempDir;
use vitrina_testbed::{Database, SearchServer};

use self::page::{Block, blocks};
use super::{Running, forget_settings, text, vitrina};

const README: &str = "README.md";
const TUTORIAL: &str = "docs/tutorial.md";
/// Of the sample cinema.
const PAGES: [&str; 7] = [
    "docs/api.md",
    "docs/orchestrators.md",
    "docs/reconcile.md",
    "docs/runners.md",
    "docs/observability.md",
    REJECTS,
    "docs/files.md",
];
const REJECTS: &str = "docs/rejects.md";

/// Stands before the output of a block.
const MARK: &str = "@@ block ";
/// Where pages find the API, and the metrics of a runner.
const ADDRESS: &str = "127.0.0.1:8080";
const METRICS: &str = "127.0.0.1:9188";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// One shell goes through a page, in a directory of its own.
struct Reader {
    directory: TempDir,
    /// In place of what the page says is the reader's own.
    own: Vec<(&'static str, String)>,
    variables: Vec<(&'static str, String)>,
    /// In place of the address that pages name.
    address: String,
}

impl Reader {
    fn at(address: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory, own: Vec::new(), variables: Vec::new(), address: address.to_owned() }
    }

    fn with_token(mut self) -> Self {
        self.variables.extend([("VITRINA_API_TOKEN", TOKEN.to_owned()), ("TOKEN", TOKEN.to_owned())]);
        self
    }

    fn follows(&self, page: &str) {
        let blocks = blocks(&repository().join(page));
        let script = self.script(&blocks);
        let mut shell = Command::new("bash");
        forget_settings(&mut shell);
        let binary = assert_cmd::cargo::cargo_bin!("vitrina");
        let path = std::env::var("PATH").unwrap();
        shell.env("PATH", format!("{}:{path}", binary.parent().unwrap().display()));
        shell.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let output = shell.args(["-c", &script]).current_dir(self.directory.path()).output().unwrap();
        let said = text(&output.stdout);
        assert!(output.status.success(), "{page}: {}\n{said}", output.status);
        for (block, shown) in shown(&blocks) {
            let printed = section(&said, block.line);
            require_lines(page, shown, printed);
        }
    }

    fn script(&self, blocks: &[Block]) -> String {
        let mut script =
            "set -euo pipefail; exec 2>&1; trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n".to_owned();
        for block in blocks {
            let Block { line, body, .. } = block;
            if let Some(file) = block.file() {
                let _ = write!(
                    script,
                    "mkdir -p \"$(dirname {file})\"; cat > {file} <<'OF_THE_PAGE'\n{body}OF_THE_PAGE\n"
                );
            } else if block.is_shell() && block.is_the_readers() {
                let own = |name: &str| self.own.iter().find(|(own, _)| *own == name);
                for name in body.lines().filter_map(|line| line.strip_prefix("export ")?.split('=').next()) {
                    let (_, value) = own(name).unwrap_or_else(|| panic!("line {line}: what is {name} here?"));
                    let _ = writeln!(script, "export {name}='{value}'");
                }
            } else if block.is_shell() && block.reason().is_none() {
                let _ = write!(
                    script,
                    "echo; echo '{MARK}{line}'\n{}",
                    body.replace(ADDRESS, &self.address).replace(METRICS, &free_address())
                );
            }
        }
        script
    }
}

/// Blocks of commands that are followed by what they print.
fn shown(blocks: &[Block]) -> impl Iterator<Item = (&Block, &Block)> {
    let pairs = blocks.iter().zip(blocks.iter().skip(1));
    pairs.filter(|(commands, shown)| {
        commands.is_shell() && commands.reason().is_none() && shown.language == "text"
    })
}

fn section(said: &str, line: usize) -> &str {
    let mark = format!("{MARK}{line}\n");
    let start = said.find(&mark).map(|place| place + mark.len()).unwrap();
    said[start..].split(MARK).next().unwrap()
}

/// In their order, and with others between them where the page leaves some out.
fn require_lines(page: &str, shown: &Block, printed: &str) {
    let mut rest = printed.lines().map(str::trim_end);
    for line in shown.body.lines() {
        let found = rest.any(|printed| printed == line.trim_end() || printed.contains(line.trim()));
        assert!(found, "{page}:{}: {line:?} was not printed:\n{printed}", shown.line);
    }
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn python() -> (&'static str, String) {
    ("VITRINA_PYTHON_INTERPRETER", vitrina_testbed::python().display().to_string())
}

// An index of its own name needs a server of its own.
#[tokio::test]
async fn whoever_follows_the_tutorial_gets_what_it_shows() {
    let (shop, server) = (Named::create("shop").await, SearchServer::own_opensearch().await);
    let address = free_address();
    let mut reader = Reader::at(&address);
    reader.own = vec![("SHOP_URL", shop.url()), ("OPENSEARCH_URL", server.url().to_owned())];
    reader.variables = vec![("VITRINA_API_LISTEN", address), python()];
    reader.follows(TUTORIAL);
}

/// Connections are called as their database is, and pages name them: such a database has a server of its own.
struct Named {
    server: Database,
    name: &'static str,
}

impl Named {
    async fn create(name: &'static str) -> Self {
        let server = Database::on_a_server_of_its_own().await;
        server.execute(&format!("create database {name}")).await;
        Self { server, name }
    }

    fn url(&self) -> String {
        self.server.server_url(self.name)
    }
}

/// The sample cinema, an API that wants a token, and a runner.
struct Cinema {
    database: Named,
    _up: Running,
    address: String,
}

const TOKEN: &str = "vt_of_the_book_0123456789abcdef";

impl Cinema {
    /// With a token it is open to nobody else.
    async fn start(token: Option<&str>) -> Self {
        let database = Named::create("cinema").await;
        let owner = |arguments: &[&str]| vitrina(arguments).variable("VITRINA_DATABASE_URL", database.url());
        for step in [&["migrate"][..], &["demo", "migrate"], &["demo", "seed", "--films", "50"]] {
            owner(step).ends(0);
        }
        let mut up = owner(&["up", "--listen", "127.0.0.1:0"])
            .variable("VITRINA_CONNECTIONS_CINEMA_URL", database.url())
            .variables(
                &token
                    .map(|token| ("VITRINA_ADMIN_TOKEN".to_owned(), token.to_owned()))
                    .into_iter()
                    .collect::<Vec<_>>(),
            )
            .start();
        let address = up.is_up();
        Self { database, _up: up, address }
    }

    /// And has a pipeline that follows changes, as pages speak of them.
    async fn refuses_a_row(&self) {
        let spoiled = "alter table analytics.film_dim add constraint title check (title <> 'Spoiled');
                       update content.film_work set title = 'Spoiled' where id = (select min(id::text)::uuid from content.film_work)";
        let mut session = PgConnection::connect(&self.database.url()).await.unwrap();
        sqlx::raw_sql(spoiled).execute(&mut session).await.unwrap();
        let ask = |arguments: &[&str]| {
            let api = format!("http://{}", self.address);
            vitrina(arguments).variable("VITRINA_API_URL", api).variable("VITRINA_API_TOKEN", TOKEN)
        };
        ask(&["run", "film_dim_full", "--watch"]).ends(1);
        let follows = repository().join("examples/cinema/pipelines/film_dim_incremental.yaml");
        let follows =
            std::fs::read_to_string(follows).unwrap().replace("schedule_interval", "# schedule_interval");
        ask(&["apply", "follows.yaml", "--yes"]).file("follows.yaml", &follows).ends(0);
    }

    fn reader(&self) -> Reader {
        let mut reader = Reader::at(&self.address);
        let (api, url) = (format!("http://{}", self.address), self.database.url());
        reader.variables = vec![
            ("VITRINA_API_URL", api.clone()),
            ("API", api),
            ("JOB", "nightly-7".to_owned()),
            ("VITRINA_DATABASE_URL", url.clone()),
            ("VITRINA_CONNECTIONS_CINEMA_URL", url.clone()),
            ("CINEMA_URL", url.clone()),
            ("MARTS_URL", url),
        ];
        reader
    }
}

#[tokio::test]
async fn what_the_pages_tell_to_type_can_be_typed() {
    let cinema = Cinema::start(Some(TOKEN)).await;
    for page in PAGES {
        if page == REJECTS {
            cinema.refuses_a_row().await;
        }
        cinema.reader().with_token().follows(page);
    }
    Cinema::start(None).await.reader().follows(README);
}

#[test]
fn every_block_of_commands_is_executed_or_says_why_not() {
    // Played as a whole, by `make smoke` and the tests of the stand.
    let played = ["docs/demo.md"];
    let executed = [&PAGES[..], &[README, TUTORIAL]].concat();
    let mut pages = vec![README.to_owned(), "CONTRIBUTING.md".to_owned(), "python/README.md".to_owned()];
    let names = std::fs::read_dir(repository().join("docs")).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| format!("docs/{}", name.to_string_lossy()));
    pages.extend(names.filter(|name| name.ends_with(".md") && !played.contains(&name.as_str())));
    for page in pages {
        for block in blocks(&repository().join(&page)).iter().filter(|block| block.is_shell()) {
            let is_executed =
                executed.contains(&page.as_str()) && (block.info.is_empty() || block.is_the_readers());
            assert!(
                is_executed || block.reason().is_some(),
                "{page}:{}: nobody executes this; add the page to those that are, or not-run=\"why\"",
                block.line
            );
        }
    }
}
