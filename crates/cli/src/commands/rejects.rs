//! `vitrina rejects PIPELINE`: rows that were refused, and what is to become of them.

use std::time::Duration;

use anyhow::Result;
use vitrina_api::documents::{Reject, RejectGroup, RejectOrder, Rejects};

use crate::client::Client;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::{self, Format, fitting, grouped, one_line, shell_word, time};

use super::reconcile::text::key_text;
use super::watch::{self, Asked};

const EXAMPLES: &str = "\
Examples:
  vitrina rejects film_dim                                    refused rows, by reason
  vitrina rejects film_dim --retry --watch                    read them again
  vitrina rejects film_dim --acknowledge --code row.check     they stay out, and stop no run
  vitrina rejects film_dim --discard                          forget them";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name or id
    pipeline: String,
    /// Only those of this reason
    #[arg(long)]
    code: Option<String>,
    /// List at most so many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500), conflicts_with = "change")]
    limit: u32,
    /// Let runs pass with them: they stay, and no longer count against reject_limit
    #[arg(long, group = "change")]
    acknowledge: bool,
    /// Read them again at the source, in a run over their keys
    #[arg(long, group = "change")]
    retry: bool,
    /// Forget them; a row that is refused again comes back
    #[arg(long, group = "change")]
    discard: bool,
    /// Change only these, as the list names them
    #[arg(long, value_delimiter = ',', requires = "change")]
    id: Option<Vec<String>>,
    /// With --retry: stay until the run has ended; its result decides the exit code
    #[arg(long, requires = "retry", conflicts_with_all = ["acknowledge", "discard"])]
    watch: bool,
    /// Watch no longer than this, such as 90s or 10m; the run goes on
    #[arg(long, value_name = "TIME", requires = "watch", value_parser = watch::timeout)]
    timeout: Option<Duration>,
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let client = context.client()?;
    let choice = RejectOrder { code: args.code.clone(), ids: args.id.clone() };
    match args {
        Args { acknowledge: true, .. } => change(args, "acknowledge", &choice, &client, context).await,
        Args { discard: true, .. } => change(args, "discard", &choice, &client, context).await,
        Args { retry: true, .. } => retry(args, &choice, &client, context).await,
        _ => list(args, &client, context).await,
    }
}

async fn change(
    args: &Args,
    verb: &str,
    choice: &RejectOrder,
    client: &Client,
    context: &Context,
) -> Result<Exit> {
    let changed = client.change_rejects(&args.pipeline, verb, choice).await?;
    context.output.show(&changed.document, || {
        let done = if verb == "discard" { "discarded" } else { "acknowledged" };
        format!("{} {done}", counted(changed.known.rejects))
    });
    Ok(Exit::Done)
}

async fn retry(args: &Args, choice: &RejectOrder, client: &Client, context: &Context) -> Result<Exit> {
    let answer = client.retry_rejects(&args.pipeline, choice).await?;
    let rest = if answer.known.more { "; there are more: ask again when it has ended" } else { "" };
    output::say(&format!("{} to be read again{rest}", counted(answer.known.rejects)));
    let asked = Asked { pipeline: &args.pipeline, accepted: &answer.known.run, document: &answer.document };
    let how = watch::Watch { watch: args.watch, timeout: args.timeout };
    watch::follow(&asked, &how, client, context).await
}

fn counted(rejects: u64) -> String {
    if rejects == 1 { "1 reject is".to_owned() } else { format!("{} rejects are", grouped(rejects)) }
}

async fn list(args: &Args, client: &Client, context: &Context) -> Result<Exit> {
    let rejects = client.rejects(&args.pipeline, args.code.as_deref(), args.limit).await?;
    context.output.show(&rejects.document, || shown(args, &rejects.known));
    if context.output == Format::Table {
        talk(args, &rejects.known);
    }
    Ok(Exit::Done)
}

fn shown(args: &Args, rejects: &Rejects) -> String {
    let none = match &args.code {
        Some(code) => format!("{} has no rejects of {code}", args.pipeline),
        None => format!("{} has no rejects", args.pipeline),
    };
    let mut parts = Vec::new();
    if !rejects.groups.is_empty() {
        let header = ["code", "rejects", "acknowledged", "first", "last"];
        parts.push(output::table(header, rejects.groups.iter().map(group)));
    }
    parts.push(match rejects.items.as_slice() {
        [] => none,
        items => {
            let header = ["id", "key", "code", "acknowledged", "message"];
            fitting(&output::table(header, items.iter().map(row)))
        }
    });
    parts.join("\n\n")
}

fn group(group: &RejectGroup) -> [String; 5] {
    [
        one_line(&group.code),
        grouped(group.rejects.unsigned_abs()),
        grouped(group.acknowledged.unsigned_abs()),
        time(group.first_rejected_at),
        time(group.last_rejected_at),
    ]
}

fn row(reject: &Reject) -> [String; 5] {
    let acknowledged = if reject.acknowledged_at.is_some() { "yes" } else { "no" };
    [
        reject.id.clone(),
        key_text(&reject.key),
        one_line(&reject.code),
        acknowledged.to_owned(),
        one_line(&reject.message),
    ]
}

fn talk(args: &Args, rejects: &Rejects) {
    if rejects.items.is_empty() {
        return;
    }
    if rejects.next_cursor.is_some() {
        output::say("there are more; --limit shows them, -o json shows their rows too");
    }
    let pipeline = shell_word(&args.pipeline);
    let code = args.code.as_ref().map(|code| format!(" --code {}", shell_word(code))).unwrap_or_default();
    let command = format!("vitrina rejects {pipeline}{code}");
    output::say(&format!(
        "next, for all of these or with --id for some:\n  \
         {command} --retry --watch   reads them again at the source\n  \
         {command} --acknowledge     lets runs pass with them\n  \
         {command} --discard         forgets them"
    ));
}
