//! A repair: shown, agreed to, made by a run over exactly the rows that differ, and proved.

use std::io::{self, IsTerminal};

use anyhow::Result;
use serde_json::{Value, json};
use vitrina_api::documents::{Reconcile, Repair};
use vitrina_core::Verdict;

use crate::client::{Answer, Client};
use crate::context::Context;
use crate::exit::Exit;
use crate::output::{self, Format, grouped, shell_word};

use super::{Args, come_to_verdict, text};
use crate::commands::watch;

pub(super) async fn run(
    args: &Args,
    found: Answer<Reconcile>,
    client: &Client,
    context: &Context,
) -> Result<Exit> {
    if context.output == Format::Table {
        super::show(&found, client, context).await?;
    }
    if found.known.verdict != Some(Verdict::Differs) {
        return Ok(nothing(&found, context));
    }
    let plan = client.forecast_repair(found.known.id).await?;
    output::say(&told(&plan.known));
    hold_limit(&plan.known)?;
    if !args.yes && !agreed()? {
        return Ok(not_yet(args, &found, &plan, context));
    }
    carry_out(args, &found, client, context).await
}

fn nothing(found: &Answer<Reconcile>, context: &Context) -> Exit {
    output::say("there is nothing to repair");
    if context.output != Format::Table {
        context.output.show(&json!({"reconcile": found.document, "repair": Value::Null}), String::new);
    }
    Exit::Done
}

fn told(repair: &Repair) -> String {
    let (upserts, deletes) = (grouped(repair.upserts), grouped(repair.deletes));
    let rest = if repair.more { "; more rows differ than were kept: --limit keeps more" } else { "" };
    format!(
        "a repair reads {upserts} rows again and deletes {deletes}, unless the source has them by then{rest}"
    )
}

fn hold_limit(repair: &Repair) -> Result<()> {
    let limit = &repair.delete_limit;
    if limit.ok {
        return Ok(());
    }
    Err(Exit::Conflict.fault(format!(
        "{} of {} rows are more than delete_limit {} lets a repair delete\n\
         hint: if so much has really vanished from the source, raise delete_limit and repair again",
        grouped(repair.deletes),
        grouped(limit.target_rows),
        limit.limit
    )))
}

/// Where nobody can be asked, nobody has agreed.
fn agreed() -> io::Result<bool> {
    Ok(io::stdin().is_terminal() && output::ask("repair this?")?)
}

fn not_yet(args: &Args, found: &Answer<Reconcile>, plan: &Answer<Repair>, context: &Context) -> Exit {
    if context.output != Format::Table {
        context.output.show(&json!({"reconcile": found.document, "repair": plan.document}), String::new);
    }
    let pipeline = shell_word(&args.pipeline);
    output::say(&format!("nothing was repaired; `vitrina reconcile {pipeline} --repair --yes` does it"));
    Exit::Differences
}

async fn carry_out(
    args: &Args,
    found: &Answer<Reconcile>,
    client: &Client,
    context: &Context,
) -> Result<Exit> {
    let repair = client.repair(found.known.id).await?;
    let run = watch::watch(client, &args.pipeline, &repair.known.run).await?;
    output::say(&watch::concluded(&run.known));
    watch::check(&args.pipeline, &run.known)?;
    let proof = come_to_verdict(client, repair.known.proof_id).await?;
    let documents = json!({"reconcile": found.document, "repair": repair.document, "run": run.document, "proof": proof.document});
    context.output.show(&documents, || text::proof(&proof.known));
    conclude(args, &repair.known.repair, &proof.known)
}

fn conclude(args: &Args, repair: &Repair, proof: &Reconcile) -> Result<Exit> {
    let pipeline = shell_word(&args.pipeline);
    if proof.verdict == Some(Verdict::Differs) {
        return Err(Exit::Failed.fault(format!(
            "rows differ that were repaired\nhint: `vitrina differences {}` shows them, `vitrina rejects {pipeline}` those that \
             the target refuses",
            proof.id
        )));
    }
    if repair.more {
        output::say(&format!(
            "more rows differ than were kept: `vitrina reconcile {pipeline} --repair` goes on with them"
        ));
    }
    Ok(Exit::Done)
}
