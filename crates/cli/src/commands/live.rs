//! `vitrina status --watch`: drawn anew in place on a terminal, and a line for every change elsewhere. The API tells
//! when something has happened; what has then changed is looked up.

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::timeout;

use crate::client::{Client, Events};
use crate::context::Context;
use crate::exit::Exit;
use crate::output::{self, Format, fitting, time};
use crate::shutdown::Shutdown;

/// Whatever moves a pipeline.
const TOPICS: &str = "run.status,run.progress,pipeline.freshness,reconcile.status";
/// Not everything is an event: an idle pipeline may be paused, or be new.
const AT_LEAST_EVERY: Duration = Duration::from_secs(5);
const AT_MOST_EVERY: Duration = Duration::from_millis(250);

/// What there is to see.
#[derive(Debug)]
pub(super) struct View {
    pub(super) text: String,
    pub(super) lines: Vec<Line>,
}

/// One pipeline of it.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) text: String,
    pub(super) document: Value,
}

/// Until somebody interrupts it.
pub(super) async fn keep_showing(
    look: impl AsyncFn() -> Result<View>,
    client: &Client,
    context: &Context,
) -> Result<Exit> {
    let shutdown = Shutdown::on_signals()?;
    let showing = async {
        let mut screen = Screen::new(context.output);
        let mut events = client.events(TOPICS).await?;
        loop {
            if !screen.show(look().await?) {
                // Whoever read it has gone.
                return Ok(Exit::Done);
            }
            tokio::time::sleep(AT_MOST_EVERY).await;
            if something_happened(&mut events).await? == Stream::Ended {
                events = client.events(TOPICS).await?;
            }
        }
    };
    match shutdown.race(showing).await {
        Some(failed) => failed,
        None => Ok(Exit::Interrupted),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Stream {
    GoesOn,
    Ended,
}

/// All that has come meanwhile is seen in one look.
async fn something_happened(events: &mut Events) -> Result<Stream> {
    let mut patience = AT_LEAST_EVERY;
    while let Ok(heard) = timeout(patience, events.next()).await {
        if !heard? {
            return Ok(Stream::Ended);
        }
        patience = Duration::ZERO;
    }
    Ok(Stream::GoesOn)
}

struct Screen {
    format: Format,
    redraws: bool,
    /// What was drawn last.
    drawn: String,
    /// What was told of each pipeline.
    told: Option<HashMap<String, String>>,
}

impl Screen {
    fn new(format: Format) -> Self {
        let redraws = format == Format::Table && io::stdout().is_terminal();
        Self { format, redraws, drawn: String::new(), told: None }
    }

    /// Answers whether somebody still reads it.
    fn show(&mut self, view: View) -> bool {
        match self.redraws {
            true => self.draw(&view.text),
            false => self.tell(view),
        }
    }

    /// As much as the terminal holds: what has left it could not be written over.
    fn draw(&mut self, text: &str) -> bool {
        let height = terminal_size::terminal_size().map_or(24, |(_, height)| usize::from(height.0));
        let text = fitting(text);
        let all: Vec<&str> = text.lines().collect();
        let mut shown: Vec<&str> = all.iter().take(height.saturating_sub(2)).copied().collect();
        if shown.len() < all.len() {
            shown.push("…");
        }
        let shown = shown.join("\n");
        if shown == self.drawn {
            return true;
        }
        let back = match self.drawn.lines().count() {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\r\x1b[J"),
        };
        let reads = output::pass_on(format!("{back}{shown}\n").as_bytes());
        self.drawn = shown;
        reads
    }

    fn tell(&mut self, view: View) -> bool {
        let before = self.told.take();
        // The first look is one table; every other form is items from the start.
        let all_at_once = before.is_none() && self.format == Format::Table;
        let mut reads = !all_at_once || output::pass_on(format!("{}\n", view.text).as_bytes());
        let known = before.unwrap_or_default();
        for Line { name, text, document } in &view.lines {
            if all_at_once || known.get(name) == Some(text) {
                continue;
            }
            let told = self.format.item(document, || format!("{}  {text}", time(Timestamp::now())));
            reads &= output::pass_on(format!("{told}\n").as_bytes());
        }
        self.told = Some(view.lines.into_iter().map(|line| (line.name, line.text)).collect());
        reads
    }
}
