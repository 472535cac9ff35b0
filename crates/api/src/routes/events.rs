//! One stream of all that happens to runs.

use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::http::HeaderMap;
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use futures_util::stream::{self, Stream, StreamExt};
use tokio::sync::broadcast::error::RecvError;
use vitrina_core::PipelineId;
use vitrina_store::TokenInfo;

use super::documentation::{InvalidRequest, Listeners};
use crate::access::Presented;
use crate::app::App;
use crate::error::{Error, Result};
use crate::events::{Event, Joined};
use crate::extract::Scoped;
use crate::query::{Params, Topics};

const LENGTH: Duration = Duration::from_secs(300);

/// What happens to runs and reconciles, as it happens
///
/// Server-sent events: `run.status` and `run.progress` with the run, `batch.done` with a batch, `pipeline.freshness` when
/// a pipeline has succeeded, `reconcile.status` and `reconcile.progress` with the reconcile. An event is the state at that time; progress comes at most four times a second. Last-Event-ID
/// goes on where a connection broke off, as it does every five minutes. `reset` says that events were missed: look at the state again.
#[utoipa::path(get, path = "/events", tag = "runs", operation_id = "listen",
    params(Topics, ("last-event-id" = Option<String>, Header, description = "the id of the last event that was heard")),
    responses((status = 200, description = "until either side ends it", content_type = "text/event-stream"), InvalidRequest, Listeners))]
pub(super) async fn listen(
    Scoped(app): Scoped,
    Extension(caller): Extension<TokenInfo>,
    Extension(token): Extension<Presented>,
    Params(topics): Params<Topics>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Message, Infallible>>>> {
    let topics = topics.words()?;
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let joined = app.events.join(last).await.ok_or(Error::Internal("nobody tells events"))?;
    let place = app.listeners.place(&caller.name).ok_or(Error::TooManyListeners)?;
    // Whoever goes on listening shows its token again; a token that is revoked meanwhile ends the stream at once.
    let over = {
        let (app, shutdown) = (app.clone(), app.shutdown.clone());
        async move {
            tokio::select! {
                () = tokio::time::sleep(LENGTH) => {}
                () = shutdown.cancelled() => {}
                () = token.revoked(app, caller) => {}
            }
        }
    };
    let messages = messages(joined).filter_map(move |told| {
        let app = app.clone();
        let wanted = told.event.as_ref().is_none_or(|(topic, _)| topics.contains(topic));
        async move { if wanted { seen(&app, told).await.map(Ok) } else { None } }
    });
    let stream = messages.take_until(over).inspect(move |_| _ = &place);
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}

struct Told {
    /// What it is about; None where it concerns every listener.
    event: Option<(&'static str, PipelineId)>,
    sse: Message,
}

/// Asked for each event when it is passed on: a pipeline that has left the scope is heard of no more, nor what it did before.
/// Where nobody can say, the listener is told to look again.
async fn seen(app: &App, told: Told) -> Option<Message> {
    let Some((_, pipeline)) = told.event else { return Some(told.sse) };
    match app.lookups.sees(app.store.scope(), pipeline).await {
        Ok(true) => Some(told.sse),
        Ok(false) => None,
        Err(_) => Some(reset().sse),
    }
}

fn messages(joined: Joined) -> impl Stream<Item = Told> {
    let begun = match joined.past {
        Some(past) => past.iter().map(|event| told(event)).collect(),
        None => vec![reset()],
    };
    let coming = stream::unfold(joined.coming, |mut coming| async {
        match coming.recv().await {
            Ok(event) => Some((told(&event), coming)),
            Err(RecvError::Lagged(_)) => Some((reset(), coming)),
            Err(RecvError::Closed) => None,
        }
    });
    stream::iter(begun).chain(coming)
}

fn told(event: &Event) -> Told {
    let sse = Message::default().event(event.topic).id(&event.id).data(event.data.to_string());
    Told { event: Some((event.topic, event.pipeline)), sse }
}

fn reset() -> Told {
    Told { event: None, sse: Message::default().event("reset").data("{}") }
}
