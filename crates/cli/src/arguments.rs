//! The command line as a whole; what a command takes stands beside the command.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::commands::{
    audit, backfill, changelog, completions, config, conn, delete, demo, differences, doctor, export, health,
    index, init, installation, logs, mart, migrate, plan, preview, python, reconcile, reconciles, rejects,
    resume, roles, row, run, runner, runners, runs, serve, state, status, targets, token, transform, up,
    validate,
};
use crate::output::Format;

/// Keeps Postgres marts and search indexes true to the services they come from
#[derive(Debug, Parser)]
#[command(name = "vitrina", version, propagate_version = false, arg_required_else_help = true)]
pub(crate) struct Arguments {
    /// Configuration file, instead of vitrina.toml in the working directory
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    pub(crate) config: Option<PathBuf>,
    /// How data is printed on stdout
    #[arg(short, long, global = true, value_enum, default_value_t, help_heading = "Everywhere")]
    pub(crate) output: Format,
    /// Log more
    #[arg(short, long, global = true, help_heading = "Everywhere")]
    pub(crate) verbose: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// See it work: a private Postgres, a sample cinema, two marts and the proof that they are right
    Demo(demo::Args),
    /// Look at a source, propose a pipeline for each table, and write the files
    Init(init::Args),
    /// Check configuration, databases, rights and services
    Doctor(doctor::Args),
    /// Run a pipeline
    Run(run::Args),
    /// How pipelines stand
    Status(status::Args),
    /// The runs of a pipeline, newest first
    Runs(runs::Args),
    /// What was noticed during a run
    Logs(logs::Args),
    /// Sample rows of a query, before it is saved or run
    Preview(preview::Args),
    /// Check pipelines or files: the query, the mart, and how changes will be followed
    Validate(validate::Args),
    /// What applying files would change
    #[command(after_help = plan::PLAN_EXAMPLES)]
    Plan(plan::Args),
    /// Apply files: exactly what their plan says, all of it or nothing
    #[command(after_help = plan::APPLY_EXAMPLES)]
    Apply(plan::Apply),
    /// What differs between files and what is configured, line by line
    #[command(after_help = plan::DIFF_EXAMPLES)]
    Diff(plan::Args),
    /// All that is configured, as files would say it
    Export(export::Args),
    /// How far a pipeline has come; from where it goes on is changed only when asked
    State(state::Args),
    /// What a pipeline's mart lacks to take its rows, as SQL; executed only when asked
    Mart(mart::Args),
    /// Search indexes: go back to what one was before its last load
    Index(index::Args),
    /// The log of changes in a source: what its owner applies, and who follows it
    Changelog(changelog::Args),
    /// Is a target equal to its source? With --repair it is made so
    Reconcile(reconcile::Args),
    /// Comparisons of targets with their sources, newest first
    Reconciles(reconciles::Args),
    /// The rows that a comparison has found to differ
    Differences(differences::Args),
    /// Where did a row go? Looked for by its key at source and target, among rejects and differences
    Row(row::Args),
    /// Rows of a pipeline that were refused: see them, let them pass, read them again, forget them
    Rejects(rejects::Args),
    /// Read rows again by their keys; the checkpoint stays where it is
    Backfill(backfill::Args),
    /// Stop a pipeline after the batch under way; resume goes on from there
    #[command(after_help = status::PAUSE_EXAMPLES)]
    Pause(status::Pipeline),
    /// Continue a pipeline where it was paused, or where its load failed
    Resume(resume::Args),
    /// End the active run, or set a paused or failed pipeline back to IDLE
    #[command(after_help = status::CANCEL_EXAMPLES)]
    Cancel(status::Pipeline),
    /// Let a pipeline run again
    #[command(after_help = status::ENABLE_EXAMPLES)]
    Enable(status::Pipeline),
    /// Let a pipeline run no more
    #[command(after_help = status::DISABLE_EXAMPLES)]
    Disable(status::Pipeline),
    /// Delete a pipeline with its history; what it has written stays
    Delete(delete::Args),
    /// Serve the API
    Serve(serve::Args),
    /// Execute pipelines
    #[command(after_help = runner::EXAMPLES)]
    Runner,
    /// Who executes pipelines
    #[command(after_help = runners::LIST_EXAMPLES)]
    Runners,
    /// Python functions of one's own: write one with its test, run the tests
    Transform(transform::Args),
    /// The Python functions that runners have registered
    #[command(after_help = python::EXAMPLES)]
    Python,
    /// Ask a runner to hand its pipelines back and stop; others go on with them
    #[command(after_help = runners::DRAIN_EXAMPLES)]
    Drain(runners::Drain),
    /// Migrate, then serve the API and execute pipelines in one process
    #[command(after_help = up::EXAMPLES)]
    Up(up::Args),
    /// Bring the meta-store's schema up to this release
    #[command(after_help = migrate::EXAMPLES)]
    Migrate,
    /// Which of several copies of a meta-store writes to the targets: after a restore, for a copy
    Installation(installation::Args),
    /// Is the API healthy? Exits with 0 or 4
    #[command(after_help = health::EXAMPLES)]
    Health,
    /// The servers that pipelines read from and write to: list and test them
    Conn(conn::Args),
    /// What pipelines write to, as it is described
    Targets(targets::Args),
    /// Who has changed what, newest first
    Audit(audit::Args),
    /// Who may call the API: make, list and revoke tokens
    Token(token::Args),
    /// SQL that creates the logins vitrina works with
    Roles(roles::Args),
    /// The configuration and where each value comes from
    Config(config::Args),
    /// Completions for a shell
    Completions(completions::Args),
}
