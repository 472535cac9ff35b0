//! Who may call. Every guarded route names its role in the route list; there is no exemption by path.
//!
//! Bearer tokens decide. Without any token a loopback server is open, but only to programs of this
//! machine: Host and Origin keep out web pages that reach it through the user's browser.

use std::time::Duration;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use tokio::time::sleep;
use vitrina_store::{Actor, Role, TokenInfo, digest};

use crate::app::App;
use crate::envelope::RequestId;
use crate::error::{Error, Result};
use crate::logins::Peer;
use crate::sight::SeesRows;

/// How often one listener's token is looked at, at most and at least.
const PACE: Duration = Duration::from_millis(200);
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Lets a call pass whose caller has at least this role, and notes who it is.
pub(crate) async fn check(
    State((app, needed)): State<(App, Needed)>,
    Extension(RequestId(request_id)): Extension<RequestId>,
    mut request: Request,
    next: Next,
) -> Result<Response> {
    let token = bearer(request.headers()).map(digest);
    let peer = request.extensions().get::<Peer>().copied();
    let remembered = token.as_ref().and_then(|token| app.lookups.remembered(token));
    if token.as_ref().is_some_and(|token| !app.lookups.is_familiar(token)) {
        app.logins.check(peer)?;
    }
    let known = remembered.filter(|caller| request.method().is_safe() && needed.permit(caller).is_ok());
    let caller = match &known {
        Some(caller) => caller.clone(),
        None => identify(&app, request.headers(), token.clone(), peer).await?,
    };
    app.limits.check(&caller.name, request.method())?;
    needed.permit(&caller)?;
    let sees_rows = SeesRows(caller.sees_rows);
    request.extensions_mut().insert(Actor { name: caller.name.clone(), request_id });
    request.extensions_mut().insert(sees_rows);
    request.extensions_mut().insert(Presented(token.clone()));
    request.extensions_mut().insert(caller);
    let mut response = match token.zip(known) {
        Some((token, known)) => meanwhile(next.run(request), confirm(&app, token, &known, needed)).await?,
        None => next.run(request).await,
    };
    response.extensions_mut().insert(sees_rows);
    Ok(response)
}

/// What a call asks of its caller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needed {
    pub(crate) role: Role,
    /// It shows values of rows, and is nothing without them.
    pub(crate) rows: bool,
}

impl Needed {
    pub(crate) const fn role(role: Role) -> Self {
        Self { role, rows: false }
    }

    fn permit(self, caller: &TokenInfo) -> Result<()> {
        if caller.role < self.role {
            return Err(Error::Forbidden(self.role));
        }
        if self.rows && !caller.sees_rows { Err(Error::RowsHidden) } else { Ok(()) }
    }
}

/// A look by a token that was good a moment ago begins while the token is asked for again. Nothing is answered before
/// that is, and nobody without a good token starts any work.
async fn meanwhile(
    answer: impl Future<Output = Response>,
    confirmed: impl Future<Output = Result<()>>,
) -> Result<Response> {
    let (response, ()) = tokio::try_join!(async { Ok(answer.await) }, confirmed)?;
    Ok(response)
}

/// The answer was begun for what was known of the token: it is for nobody with other rights.
async fn confirm(app: &App, token: Vec<u8>, known: &TokenInfo, needed: Needed) -> Result<()> {
    let caller = app.lookups.token(token).await?.ok_or(Error::Unauthorized)?;
    needed.permit(&caller)?;
    if caller == *known { Ok(()) } else { Err(Error::RightsChanged) }
}

async fn identify(
    app: &App,
    headers: &HeaderMap,
    token: Option<Vec<u8>>,
    peer: Option<Peer>,
) -> Result<TokenInfo> {
    let is_presented = token.is_some();
    if let Some(token) = token
        && let Some(caller) = app.lookups.token(token).await?
    {
        return Ok(caller);
    }
    // Asked each time: the first token closes an open server at once. Revoking the last one opens none that was closed:
    // nobody would be told.
    if !app.rules.loopback || app.is_closed().await? {
        if is_presented {
            app.logins.failed(peer, &app.exposition);
        }
        return Err(Error::Unauthorized);
    }
    check_locality(headers)?;
    // Who sends a token expects to be known by it: this may be another server than the one meant.
    if headers.contains_key(header::AUTHORIZATION) {
        return Err(Error::NeedlessToken);
    }
    Ok(TokenInfo { name: "local".to_owned(), role: Role::Admin, sees_rows: true })
}

/// The digest of the token that a call came with.
#[derive(Debug, Clone)]
pub(crate) struct Presented(Option<Vec<u8>>);

impl Presented {
    /// Returns when the token is not any more what it was when its call began.
    pub(crate) async fn revoked(self, app: App, caller: TokenInfo) {
        let mut wakeups = app.wakeups.clone();
        while self.holds(&app, &caller).await {
            sleep(PACE).await;
            tokio::select! {
                () = wakeups.changed() => {}
                // It may expire, of which nobody is notified.
                () = sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// A meta-store that is away has revoked nothing.
    async fn holds(&self, app: &App, caller: &TokenInfo) -> bool {
        match &self.0 {
            Some(token) => match app.lookups.token(token.clone()).await {
                Ok(found) => found.as_ref() == Some(caller),
                Err(_) => true,
            },
            None => !app.is_closed().await.unwrap_or(false),
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn check_locality(headers: &HeaderMap) -> Result<()> {
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let host: Option<Authority> = host.and_then(|host| host.parse().ok()).filter(is_local);
    let host = host.ok_or(Error::ForeignHost)?;
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin: Option<Uri> = origin.to_str().ok().and_then(|origin| origin.parse().ok());
    let origin = origin.and_then(|origin| origin.authority().cloned());
    let same = |origin: &Authority| is_local(origin) && origin.port_u16() == host.port_u16();
    origin.filter(same).map(|_| ()).ok_or(Error::ForeignOrigin)
}

fn is_local(authority: &Authority) -> bool {
    matches!(authority.host(), "localhost" | "127.0.0.1" | "[::1]") && !authority.as_str().contains('@')
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn called(host: &'static str, origin: Option<&'static str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static(host));
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
        }
        check_locality(&headers).is_ok()
    }

    #[test]
    fn an_open_server_answers_only_to_its_local_names() {
        assert!(called("localhost:8080", None));
        assert!(called("127.0.0.1:8080", None));
        assert!(called("[::1]:8080", None));
        for host in
            ["example.com", "localhost.example.com", "localhost@example.com", "127.0.0.1.example.com", ""]
        {
            assert!(!called(host, None), "{host}");
        }
    }

    #[test]
    fn an_open_server_answers_to_no_page_but_its_own() {
        assert!(called("localhost:8080", Some("http://localhost:8080")));
        assert!(called("localhost:8080", Some("http://127.0.0.1:8080")));
        for origin in ["null", "http://example.com", "http://localhost:3000", "http://localhost"] {
            assert!(!called("localhost:8080", Some(origin)), "{origin}");
        }
    }
}
