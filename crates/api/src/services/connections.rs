//! Connections: named in the configuration of server and runners, told without their secrets, tested by a runner.

use std::collections::BTreeSet;

use secrecy::ExposeSecret;
use serde_json::json;
use vitrina_guard::Visible;
use vitrina_store::{Actor, RunnerRecord};

use crate::app::App;
use crate::documents::{Connection, ConnectionFinding, ConnectionTest};
use crate::error::{Error, Result};

use super::asking::Question;

/// Those of this server, and those of runners that are alive.
pub(crate) async fn list(app: &App) -> Result<Vec<Connection>> {
    let runners: Vec<RunnerRecord> =
        app.store.runners().await?.into_iter().filter(|runner| runner.alive).collect();
    let own = app.rules.source_connections.keys();
    let names: BTreeSet<&String> = own.chain(runners.iter().flat_map(|runner| &runner.connections)).collect();
    Ok(names.into_iter().map(|name| shown(app, name, &runners)).collect())
}

fn shown(app: &App, name: &str, runners: &[RunnerRecord]) -> Connection {
    let own = app.rules.source_connections.get(name);
    let serving = runners.iter().filter(|runner| runner.connections.iter().any(|served| served == name));
    let finding = |runner: &RunnerRecord| ConnectionFinding {
        runner: runner.name.clone(),
        problem: runner.health.get(name).cloned().flatten(),
    };
    Connection {
        name: name.to_owned(),
        address: own.and_then(|own| vitrina_guard::shown_address(own.url.get().expose_secret())),
        allowed_schemas: own.map(|connection| connection.allowed_schemas.clone()),
        runners: serving.map(finding).collect(),
    }
}

/// A runner opens a session there and looks at the rights of its login.
pub(crate) async fn test(app: &App, actor: &Actor, name: &str) -> Result<ConnectionTest> {
    if !list(app).await?.iter().any(|connection| connection.name == name) {
        return Err(Error::NoSuchConnection(name.to_owned()));
    }
    let question = Question {
        kind: "test_connection",
        pipeline: None,
        payload: json!({"connection": name}),
        connections: vec![name.to_owned()],
        python_tasks: Vec::new(),
    };
    let answer = app.ask(actor, question).await?;
    serde_json::from_value(answer).map_err(|_| Error::Internal("a test of a connection cannot be read"))
}

/// The tables and columns of a source, as the server's own login sees them in the allowed schemas.
pub(crate) async fn schema(app: &App, name: &str) -> Result<Visible> {
    let Some(own) = app.rules.source_connections.get(name) else {
        let known = list(app).await?.iter().any(|connection| connection.name == name);
        return Err(if known {
            Error::NotASource(name.to_owned())
        } else {
            Error::NoSuchConnection(name.to_owned())
        });
    };
    let session = own.read("schema").await.map_err(Error::SourceAway)?;
    let seen = vitrina_guard::visible(&session.client, &own.allowed_schemas).await;
    seen.map_err(|_| Error::SourceAway("the source did not tell its tables".to_owned()))
}
