//! `vitrina token`: who may call the API. Made at the meta-store itself, so that the first one needs no other.

use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use vitrina_api::check_admin_token;
use vitrina_core::{is_tag, tag_rule};
use vitrina_store::{ADMIN, Actor, NewToken, Offered, Role, Scope, Store, TokenRecord};

use crate::context::{Context, connect};
use crate::exit::Exit;
use crate::output::{self, time};

use super::watch::timeout;

const EXAMPLES: &str = "\
Examples:
  vitrina token create grafana --role viewer   prints it, this once
  vitrina token create analyst --role viewer --rows   sees values of rows as well
  vitrina token create ci --role admin --expires-in 720h
  vitrina token create team-films --role operator --tag films --tag search   only pipelines with one of these tags
  vitrina token admin --replace   with the new value in VITRINA_ADMIN_TOKEN
  vitrina token list
  vitrina token revoke grafana";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a token and print it: it is shown this once, and stored nowhere
    Create {
        /// What the audit calls its owner
        name: String,
        #[arg(long, value_enum)]
        role: Word,
        /// How long it is valid, such as 12h or 720h; for ever when not given
        #[arg(long, value_name = "TIME", value_parser = timeout)]
        expires_in: Option<Duration>,
        /// Show values of rows to it: rejects, differences, previews, errors that quote them. Operators and admins see
        /// them unless --no-rows says otherwise, viewers only with this
        #[arg(long, overrides_with = "no_rows")]
        rows: bool,
        /// Show no values of rows to it
        #[arg(long)]
        no_rows: bool,
        /// Only for pipelines that have this tag; repeated, one of them is enough. All others do not exist for the token, and the
        /// installation as a whole is not its to manage. Without any, the token is for all pipelines
        #[arg(long = "tag", value_name = "TAG", value_parser = tag)]
        tags: Vec<String>,
        /// Replace a token of this name
        #[arg(long)]
        replace: bool,
    },
    /// Make the value of VITRINA_ADMIN_TOKEN the admin token
    ///
    /// A server does so by itself where the meta-store has none yet, and never in place of another one.
    Admin {
        /// In place of the one there is, which is worthless then
        #[arg(long)]
        replace: bool,
    },
    /// The tokens there are, without their secrets
    List,
    /// Make a token worthless at once
    Revoke { name: String },
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Word {
    /// Sees everything but the audit and values of rows
    Viewer,
    /// Also runs, pauses, validates and previews
    Operator,
    /// Also changes pipelines and targets, and reads the audit
    Admin,
}

impl From<Word> for Role {
    fn from(word: Word) -> Self {
        match word {
            Word::Viewer => Self::Viewer,
            Word::Operator => Self::Operator,
            Word::Admin => Self::Admin,
        }
    }
}

pub(crate) async fn run(args: &Args, context: &Context) -> Result<Exit> {
    let settings = context.settings()?;
    let store = connect(&settings, "vitrina-token", 1).await?;
    store.check_schema().await?;
    let done = match &args.command {
        Command::Create { name, role, expires_in, rows, no_rows, tags, replace } => {
            let role = Role::from(*role);
            let sees_rows = sees_rows(role, *rows, *no_rows)?;
            let rights = Rights { role, sees_rows, scope: scope(tags), expires_in: *expires_in };
            create(&store, name, &rights, *replace, context).await
        }
        Command::Admin { replace } => admin(&store, settings.api.admin_token.as_ref(), *replace).await,
        Command::List => list(&store, context).await,
        Command::Revoke { name } => revoke(&store, name).await,
    };
    store.close().await;
    done.map(|()| Exit::Done)
}

/// What a new token may do, and for how long.
struct Rights {
    role: Role,
    sees_rows: bool,
    scope: Scope,
    expires_in: Option<Duration>,
}

fn scope(tags: &[String]) -> Scope {
    match tags {
        [] => Scope::EVERYTHING,
        tags => Scope::of(tags),
    }
}

/// As a pipeline may have it: another one would be for none.
fn tag(text: &str) -> Result<String, String> {
    match is_tag(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("{}\nhint: give --tag again for another tag", tag_rule())),
    }
}

/// An admin writes the queries, and could show rows to anybody.
fn sees_rows(role: Role, rows: bool, no_rows: bool) -> Result<bool> {
    if role == Role::Admin && no_rows {
        let message = "an admin sees rows: whoever writes queries could read them anyway\nhint: leave --no-rows out, or make an operator";
        return Err(Exit::Usage.fault(message));
    }
    Ok(rows || (role > Role::Viewer && !no_rows))
}

async fn create(store: &Store, name: &str, rights: &Rights, replace: bool, context: &Context) -> Result<()> {
    let Rights { role, sees_rows, expires_in, ref scope } = *rights;
    check_name(name)?;
    if !replace && store.tokens().await?.iter().any(|token| token.name == name) {
        let message = format!(
            "a token named {name:?} exists already\nhint: add --replace, which makes the old one worthless"
        );
        return Err(Exit::Conflict.fault(message));
    }
    let expires_at =
        expires_in.and_then(|time| SignedDuration::try_from(time).ok()).map(|time| Timestamp::now() + time);
    let secret = draw();
    let token = NewToken { expires_at, sees_rows, scope: scope.clone(), ..NewToken::of(name, role, &secret) };
    store.put_token(&token).await?;
    let tags = scope.tags();
    let after =
        json!({"role": role.as_str(), "sees_rows": sees_rows, "tags": tags, "expires_at": expires_at});
    store.audit(&actor(), "token.create", &format!("token {name}"), None, Some(after)).await?;
    let document = json!({
        "name": name, "role": role.as_str(), "sees_rows": sees_rows, "tags": tags, "expires_at": expires_at,
        "token": secret,
    });
    context.output.show(&document, || secret.clone());
    output::say("keep it: it is shown this once");
    Ok(())
}

async fn admin(store: &Store, token: Option<&SecretString>, replace: bool) -> Result<()> {
    let Some(token) = token else {
        return Err(Exit::Usage.fault("there is no VITRINA_ADMIN_TOKEN\nhint: set it to the new value"));
    };
    let token = token.expose_secret().trim();
    check_admin_token(token).map_err(|error| Exit::Usage.fault(error.to_string()))?;
    match (store.offer_admin_token(token).await?, replace) {
        (Offered::Saved, _) => output::say("VITRINA_ADMIN_TOKEN is the admin token now"),
        (Offered::Known, _) => output::say("VITRINA_ADMIN_TOKEN is the admin token already"),
        (Offered::Other, false) => {
            let message =
                "the meta-store has another admin token\nhint: add --replace, which makes that one worthless";
            return Err(Exit::Conflict.fault(message));
        }
        (Offered::Other, true) => {
            store.put_token(&NewToken::of(ADMIN, Role::Admin, token)).await?;
            store.audit(&actor(), "token.replace", "token admin", None, None).await?;
            output::say("VITRINA_ADMIN_TOKEN is the admin token now, and the one before is worthless");
        }
    }
    Ok(())
}

async fn list(store: &Store, context: &Context) -> Result<()> {
    let tokens = store.tokens().await?;
    context.output.show(&tokens, || {
        let moment = |at: Option<Timestamp>, none: &str| at.map_or_else(|| none.to_owned(), time);
        let row = |token: &TokenRecord| {
            let TokenRecord { name, role, sees_rows, scope, created_at, expires_at, last_used_at } = token;
            let role = role.as_str().to_owned();
            [
                name.clone(),
                role,
                if *sees_rows { "yes" } else { "no" }.to_owned(),
                scope.tags().map_or_else(|| "all".to_owned(), |tags| tags.join(", ")),
                time(*created_at),
                moment(*expires_at, "never"),
                moment(*last_used_at, "never"),
            ]
        };
        output::table(
            ["token", "role", "rows", "pipelines", "made", "expires", "last used"],
            tokens.iter().map(row),
        )
    });
    Ok(())
}

async fn revoke(store: &Store, name: &str) -> Result<()> {
    if !store.revoke_token(name).await? {
        return Err(
            Exit::Usage.fault(format!("there is no token {name:?}\nhint: `vitrina token list` lists them"))
        );
    }
    store.audit(&actor(), "token.revoke", &format!("token {name}"), None, None).await?;
    output::say(&format!("{name} is worthless now"));
    if name == "admin" {
        output::say(
            "a process that starts with VITRINA_ADMIN_TOKEN makes it again: take the variable away, or give it another value",
        );
    }
    Ok(())
}

fn check_name(name: &str) -> Result<()> {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '@');
    match (1..=100).contains(&name.chars().count()) && name.chars().all(plain) {
        true => Ok(()),
        false => {
            let message =
                format!("{name:?} is no name of a token\nhint: use letters, digits, '_', '-', '.' and '@'");
            Err(Exit::Usage.fault(message))
        }
    }
}

/// Whoever has the meta-store's password.
fn actor() -> Actor {
    Actor { name: "command line".to_owned(), request_id: String::new() }
}

/// 256 random bits of the operating system.
fn draw() -> String {
    let bits = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
    format!("vit_{}", bits.iter().map(|part| part.simple().to_string()).collect::<String>())
}
