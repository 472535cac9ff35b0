//! One file per command. Each takes its arguments and the context, and answers with an exit code.

pub(crate) mod audit;
pub(crate) mod backfill;
pub(crate) mod changelog;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod conn;
pub(crate) mod delete;
pub(crate) mod demo;
pub(crate) mod differences;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod health;
pub(crate) mod index;
pub(crate) mod init;
pub(crate) mod installation;
mod live;
pub(crate) mod logs;
pub(crate) mod mart;
pub(crate) mod migrate;
pub(crate) mod plan;
pub(crate) mod preview;
pub(crate) mod python;
pub(crate) mod reconcile;
pub(crate) mod reconciles;
pub(crate) mod rejects;
pub(crate) mod resume;
pub(crate) mod roles;
pub(crate) mod row;
pub(crate) mod run;
pub(crate) mod runner;
pub(crate) mod runners;
pub(crate) mod runs;
pub(crate) mod serve;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod targets;
pub(crate) mod token;
pub(crate) mod transform;
pub(crate) mod up;
pub(crate) mod validate;
mod watch;

use anyhow::Result;

use crate::arguments::{Arguments, Command};
use crate::context::Context;
use crate::exit::Exit;

pub(crate) async fn dispatch(arguments: Arguments) -> Result<Exit> {
    let Arguments { config, output, verbose, command } = arguments;
    let context = Context { output, verbose, file: config };
    match command {
        Command::Demo(args) => Box::pin(demo::run(args, &context)).await,
        Command::Init(args) => Box::pin(init::run(&args, &context)).await,
        Command::Doctor(args) => Box::pin(doctor::run(&args, &context)).await,
        Command::Run(args) => run::run(&args, &context).await,
        Command::Status(args) => status::run(&args, &context).await,
        Command::Runs(args) => runs::run(&args, &context).await,
        Command::Validate(args) => Box::pin(validate::run(&args, &context)).await,
        Command::Logs(args) => logs::run(&args, &context).await,
        Command::Preview(args) => preview::run(&args, &context).await,
        Command::Conn(args) => conn::run(&args, &context).await,
        Command::Plan(args) => plan::plan(&args, &context).await,
        Command::Apply(args) => plan::apply(&args, &context).await,
        Command::Diff(args) => plan::diff(&args, &context).await,
        Command::Export(args) => export::run(&args, &context).await,
        Command::Changelog(args) => Box::pin(changelog::run(&args, &context)).await,
        Command::State(args) => state::run(&args, &context).await,
        Command::Index(args) => Box::pin(index::run(&args, &context)).await,
        Command::Mart(args) => Box::pin(mart::run(&args, &context)).await,
        Command::Backfill(args) => backfill::run(&args, &context).await,
        Command::Reconcile(args) => Box::pin(reconcile::run(&args, &context)).await,
        Command::Reconciles(args) => reconciles::run(&args, &context).await,
        Command::Differences(args) => differences::run(&args, &context).await,
        Command::Row(args) => row::run(&args, &context).await,
        Command::Rejects(args) => rejects::run(&args, &context).await,
        Command::Pause(args) => status::change(&args, "pause", &context).await,
        Command::Resume(args) => resume::run(&args, &context).await,
        Command::Cancel(args) => status::change(&args, "cancel", &context).await,
        Command::Enable(args) => status::change(&args, "enable", &context).await,
        Command::Disable(args) => status::change(&args, "disable", &context).await,
        Command::Delete(args) => delete::run(&args, &context).await,
        Command::Serve(args) => Box::pin(serve::run(&args, &context)).await,
        Command::Runner => Box::pin(runner::run(&context)).await,
        Command::Runners => runners::list(&context).await,
        Command::Python => python::list(&context).await,
        Command::Transform(args) => Box::pin(transform::run(&args, &context)).await,
        Command::Drain(args) => runners::drain(&args, &context).await,
        Command::Up(args) => Box::pin(up::run(&args, &context)).await,
        Command::Migrate => migrate::run(&context).await,
        Command::Installation(args) => installation::run(&args, &context).await,
        Command::Health => health::run(&context).await,
        Command::Targets(args) => targets::run(&args, &context).await,
        Command::Audit(args) => audit::run(&args, &context).await,
        Command::Token(args) => token::run(&args, &context).await,
        Command::Roles(args) => roles::run(&args, &context),
        Command::Config(args) => config::run(&args, &context),
        Command::Completions(args) => Ok(completions::run(&args)),
    }
}
