//! The showpiece: from nothing to two proven marts, one more where there is Python, and three indexes where a search server is
//! named; then everything stays
//! for the visitor to look around.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::Result;
use sqlx::{Connection, PgConnection};
use url::Url;
use vitrina_api::StartError;
use vitrina_api::documents::{Run, RunOrder};
use vitrina_cinema::DEMO_PIPELINES;
use vitrina_core::RunStatus;
use vitrina_runner::RunLog;
use vitrina_store::Store;

use super::film_search::FilmSearch;
use super::stand::{self, Place, Stand};
use super::{Args, Size, search, steps};
use crate::client::Client;
use crate::config::{ApiSettings, Config, Flag, Inputs, LogFormat, Settings};
use crate::context::Context;
use crate::exit::Exit;
use crate::files::Files;
use crate::logging;
use crate::output::{grouped, print, say, seconds, shell_word};
use crate::services::Services;
use crate::shutdown::Shutdown;

/// Where the command line looks for the API if nothing else is said.
const DEFAULT_PORT: u16 = 8080;

pub(super) async fn run(args: Args, context: &Context) -> Result<Exit> {
    // That the API is open to this machine is the point of a demo, not a danger to warn of.
    let filter = if context.verbose { "info" } else { "warn,vitrina_api::server=error" };
    let telling = logging::start_with(LogFormat::Auto, filter);
    let shutdown = Shutdown::on_signals()?;
    let server = search::find().await?;
    let place = Place::claim(stand::directory(args.dir.clone())?)?;
    say("starting a private Postgres …");
    let stand = Stand::start(place).await?;
    let set = Set { stand: &stand, args: &args, server: server.as_ref(), shutdown: &shutdown };
    let shown = on_stand(&set, &telling.run_log).await;
    let stopped = stand.stop().await;
    telling.end();
    let exit = shown?;
    stopped?;
    Ok(exit)
}

/// What the showpiece is played with.
#[derive(Debug, Clone, Copy)]
struct Set<'a> {
    stand: &'a Stand,
    args: &'a Args,
    server: Option<&'a search::Server>,
    shutdown: &'a Shutdown,
}

/// Whatever happens here, the caller stops the Postgres afterwards.
async fn on_stand(set: &Set<'_>, run_log: &RunLog) -> Result<Exit> {
    print(&set.stand.described());
    match set.shutdown.race(prepare(set.stand, set.args)).await {
        Some(prepared) => prepared?,
        None => return Ok(Exit::Interrupted),
    }
    let mut services = Services::new(set.shutdown.token.child_token(), run_log.clone());
    let shown = with_services(&mut services, set).await;
    let stopped = services.stop().await;
    let exit = shown?;
    stopped?;
    Ok(exit)
}

/// Everything that needs the owner of the database: schemas, data, logins.
async fn prepare(stand: &Stand, args: &Args) -> Result<()> {
    let url = stand.admin_url();
    let store = Store::connect(url, "vitrina-migrate", 2).await?;
    store.migrate().await?;
    store.close().await;
    vitrina_cinema::migrate(url).await?;
    stand.create_logins().await?;
    fill(stand, args.size).await?;
    let [films, ratings] = sizes(url).await?;
    print(&format!("sample cinema: {} films, {} ratings", grouped(films), grouped(ratings)));
    Ok(())
}

/// A cinema that is there keeps its size: more of it would be another sample, and less a loss.
async fn fill(stand: &Stand, asked: Size) -> Result<()> {
    let url = stand.admin_url();
    let [films, ratings] = sizes(url).await?;
    if films == 0 {
        say("filling the sample cinema …");
        return steps::fill(url, asked).await;
    }
    let differs = |asked: Option<u32>, found| asked.is_some_and(|asked| u64::from(asked) != found);
    if differs(asked.films, films) || differs(asked.ratings, ratings) {
        let clean = format!("{} demo --clean{}", program(), stand.flag());
        say(&format!("the cinema has {} films already; `{clean}` first", grouped(films)));
    }
    steps::fill(url, Size { films: None, ratings: None }).await
}

async fn sizes(url: &str) -> Result<[u64; 2]> {
    let mut connection = PgConnection::connect(url).await?;
    let query = "select (select count(*) from content.film_work), (select count(*) from ugc.ratings)";
    let (films, ratings): (i64, i64) = sqlx::query_as(query).fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok([films, ratings].map(i64::unsigned_abs))
}

async fn with_services(services: &mut Services, set: &Set<'_>) -> Result<Exit> {
    let (settings, address) = start_api(services, set).await?;
    let film_search = FilmSearch::start(set.stand.directory()).await;
    services.start_runner(&settings, film_search.python()).await?;
    print(&format!("API on http://{address}, with one runner; it is open to every program on this machine"));
    let client = Client::new(&set.stand.settings(vec![listen(address)], None)?.api)?;
    let proof = prove(&client, set, &film_search);
    let exit = tokio::select! {
        proven = proof => proven?,
        ended = services.one_ended() => return ended.map(|()| Exit::Interrupted),
        () = set.shutdown.token.cancelled() => return Ok(Exit::Interrupted),
    };
    if !set.args.once {
        invite(set, address);
        services.one_ended().await?;
    }
    Ok(exit)
}

/// On the usual port, so that other commands find it without being told, unless that is taken.
async fn start_api(services: &mut Services, set: &Set<'_>) -> Result<(Settings, SocketAddr)> {
    let (asked, usual) = (set.args.listen, SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)));
    let settings = set.stand.settings(vec![listen(asked.unwrap_or(usual))], set.server)?;
    let started = services.start_api(&settings).await;
    let taken = |error: &anyhow::Error| matches!(error.downcast_ref(), Some(StartError::PortTaken(_)));
    match started {
        Err(error) if asked.is_none() && taken(&error) => {
            let any = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
            let settings = set.stand.settings(vec![any], set.server)?;
            let address = services.start_api(&settings).await?;
            Ok((settings, address))
        }
        started => Ok((settings, started?)),
    }
}

fn listen(address: SocketAddr) -> Flag {
    Flag { key: "api.listen".to_owned(), name: "--listen", value: address.to_string() }
}

/// Runs the pipelines as anyone would, through the API, and compares the marts with a recomputation; then the indexes.
async fn prove(client: &Client, set: &Set<'_>, film_search: &FilmSearch) -> Result<Exit> {
    run_all(client, &DEMO_PIPELINES, &RunOrder::default()).await?;
    let mut checks = vitrina_cinema::verify(set.stand.admin_url()).await?;
    for check in &checks {
        print(&steps::verdict(check));
    }
    checks.extend(film_search.show(client, set.stand.admin_url()).await?);
    let indexes = match set.server {
        Some(server) => search::show(server, client, set.stand).await?,
        None => search::go_without(client).await.map(|()| Exit::Done)?,
    };
    Ok(if steps::judge(&checks) == Exit::Done { indexes } else { Exit::Differences })
}

/// Creates or changes what these files describe, as `vitrina apply` would.
pub(super) async fn apply<const N: usize>(client: &Client, files: [(&str, &str); N]) -> Result<()> {
    let files = Files::of_texts(files.map(|(name, text)| (Path::new(name), text)))?;
    let configuration = files.configuration(false);
    let plan = client.plan(&configuration).await?.known;
    if let Some(error) = plan.checks.iter().find(|_| !plan.ok) {
        return Err(Exit::Failed.fault(format!("the demo's pipelines cannot be made: {}", error.detail)));
    }
    if !plan.changes.is_empty() {
        client.apply(configuration, &plan.hash).await?;
    }
    Ok(())
}

/// Requests them together and tells of each as it ends.
pub(super) async fn run_all(client: &Client, pipelines: &[&str], order: &RunOrder) -> Result<()> {
    let mut requested = Vec::new();
    for pipeline in pipelines {
        let accepted = client.run(pipeline, order).await?;
        requested.push((pipeline, accepted.known.run_id));
    }
    for (pipeline, id) in requested {
        let run = loop {
            let run = client.follow(id, 30).await?.known;
            if !run.status.is_open() {
                break run;
            }
        };
        print(&ended(pipeline, &run)?);
    }
    Ok(())
}

fn ended(pipeline: &str, run: &Run) -> Result<String> {
    if run.status != RunStatus::Success {
        let error = run.error.as_deref().unwrap_or_default();
        return Err(Exit::Failed.fault(format!("the run of {pipeline} ended as {}: {error}", run.status)));
    }
    let [read, written, unchanged] = [run.rows_read, run.rows_written, run.rows_unchanged].map(grouped);
    let took = seconds(run.duration_ms.unwrap_or_default());
    Ok(format!("{pipeline}: {read} rows read, {written} written, {unchanged} unchanged, in {took}"))
}

fn invite(set: &Set<'_>, address: SocketAddr) {
    let environment = environment(address);
    let vitrina = format!("{environment}{}", program());
    let variables = shell_word(&set.stand.variables_file().to_string_lossy());
    let search = set.server.map(|server| {
        let typed = server.typed();
        format!(
            "  curl -s \"{typed}/movies/_search?q=title:jedi&filter_path=hits.hits._source.title&pretty\"\n  \
               {vitrina} run movies_index --watch\n"
        )
    });
    print(&format!(
        "in a browser: http://{address}/ui/\n\
         look inside:  (set -a; . {variables}; psql -c 'select * from analytics.film_dim limit 5')"
    ));
    say("try next, in another terminal:");
    print(&format!(
        "  {vitrina} status\n  \
           {vitrina} run film_dim_full --watch\n  \
           {vitrina} reconcile film_dim_full --level rows\n\
         {}Ctrl-C stops everything; `{} demo --clean{}` removes it",
        search.unwrap_or_default(),
        program(),
        set.stand.flag()
    ));
}

/// What must be set for commands typed here to find this API, whatever else they are configured for.
fn environment(address: SocketAddr) -> String {
    let here = format!("http://{address}");
    let configured = Inputs::of_process(Vec::new(), None).ok().and_then(|inputs| Config::load(&inputs).ok());
    let api = configured.map(|config| config.settings.api);
    let is_found = |api: &ApiSettings| Url::parse(&here).is_ok_and(|here| here == api.url);
    let mut environment = String::new();
    if !api.as_ref().is_some_and(is_found) {
        environment.push_str(&format!("VITRINA_API_URL={here} "));
    }
    // An open API refuses tokens: they are meant for another one.
    if api.is_some_and(|api| api.token.is_some()) {
        environment.push_str("VITRINA_API_TOKEN= ");
    }
    environment
}

/// As the visitor can type it: the bare name if it was found on the PATH.
fn program() -> String {
    let typed = std::env::args().next().unwrap_or_default();
    if !typed.contains('/') {
        return "vitrina".to_owned();
    }
    let path = std::env::current_exe().map(|path| path.to_string_lossy().into_owned()).unwrap_or(typed);
    shell_word(&path)
}
