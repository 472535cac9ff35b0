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
use jiff::Timestamp;
use tokio::time::{Instant, sleep};
use vitrina_store::{Actor, Role, Scope, TokenInfo, digest};

use crate::app::App;
use crate::envelope::RequestId;
use crate::error::{Error, Result};
use crate::logins::Peer;
use crate::sight::{SeesOthers, SeesRows};

/// How often one listener's token is looked at, at most and at least.
const PACE: Duration = Duration::from_millis(200);
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// An answer that was waited for longer is for the token as it is by then.
const A_WHILE: Duration = Duration::from_secs(1);

/// Lets a call pass whose caller has the rights that it needs, and notes who it is.
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
    let (sees_rows, sees_others) = (SeesRows(caller.sees_rows), SeesOthers(caller.scope.is_everything()));
    let (began, is_safe) = (Instant::now(), request.method().is_safe());
    request.extensions_mut().insert(Actor { name: caller.name.clone(), request_id });
    request.extensions_mut().insert(sees_rows);
    request.extensions_mut().insert(Presented(token.clone()));
    request.extensions_mut().insert(caller.clone());
    let answered = async {
        match token.clone().zip(known) {
            Some((token, known)) => meanwhile(next.run(request), confirm(&app, token, &known, needed)).await,
            None => Ok(next.run(request).await),
        }
    };
    let only_looks = is_safe || needed.looks;
    let mut response = match only_looks {
        true => unless_expired(answered, &app, Presented(token.clone()), &caller).await?,
        false => answered.await?,
    };
    if let Some(token) = token.filter(|_| only_looks && began.elapsed() > A_WHILE) {
        confirm(&app, token, &caller, needed).await?;
    }
    response.extensions_mut().insert(sees_rows);
    response.extensions_mut().insert(sees_others);
    Ok(response)
}

/// What a call asks of its caller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needed {
    pub(crate) role: Role,
    /// It shows values of rows, and is nothing without them.
    pub(crate) rows: bool,
    /// It is about the installation: nothing for a token with a scope.
    pub(crate) everything: bool,
    /// It changes nothing, though it is a POST.
    pub(crate) looks: bool,
}

impl Needed {
    pub(crate) const fn role(role: Role) -> Self {
        Self { role, rows: false, everything: false, looks: false }
    }

    fn permit(self, caller: &TokenInfo) -> Result<()> {
        if caller.role < self.role {
            return Err(Error::Forbidden(self.role));
        }
        if self.everything && !caller.scope.is_everything() {
            return Err(Error::NeedsEverything);
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

/// A look that outlasts its token is given up, as if its caller had hung up. What changes something is carried out.
async fn unless_expired(
    answer: impl Future<Output = Result<Response>>,
    app: &App,
    token: Presented,
    caller: &TokenInfo,
) -> Result<Response> {
    tokio::select! {
        answer = answer => answer,
        () = token.expired(app, caller) => Err(Error::Unauthorized),
    }
}

/// The answer was begun for what was known of the token: it is for nobody with other rights.
async fn confirm(app: &App, token: Vec<u8>, known: &TokenInfo, needed: Needed) -> Result<()> {
    let caller = app.lookups.token(token).await?.ok_or(Error::Unauthorized)?;
    needed.permit(&caller)?;
    if caller.equals(known) { Ok(()) } else { Err(Error::RightsChanged) }
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
    Ok(TokenInfo {
        name: "local".to_owned(),
        role: Role::Admin,
        sees_rows: true,
        scope: Scope::EVERYTHING,
        expires_at: None,
    })
}

/// The digest of the token that a call came with.
#[derive(Debug, Clone)]
pub(crate) struct Presented(Option<Vec<u8>>);

impl Presented {
    /// Returns when the token is not any more what it was when its call began.
    pub(crate) async fn revoked(self, app: App, caller: TokenInfo) {
        let mut wakeups = app.wakeups.clone();
        while let Some(now) = self.current(&app, &caller).await {
            sleep(PACE).await;
            tokio::select! {
                () = wakeups.changed() => {}
                // Of this nobody is notified.
                () = sleep_until_expiry(&now) => {}
                () = sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Returns when the time of the token is over, by the clock of the meta-store: never, where it has no end.
    async fn expired(self, app: &App, caller: &TokenInfo) {
        let mut caller = caller.clone();
        loop {
            sleep_until_expiry(&caller).await;
            match self.current(app, &caller).await {
                Some(now) => caller = now,
                None => return,
            }
            sleep(PACE).await;
        }
    }

    /// Whom it stands for, unless it is not any more what it was. A meta-store that is away has revoked nothing.
    async fn current(&self, app: &App, caller: &TokenInfo) -> Option<TokenInfo> {
        match &self.0 {
            Some(token) => match app.lookups.token(token.clone()).await {
                Ok(found) => found.filter(|found| found.equals(caller)),
                Err(_) => Some(caller.clone()),
            },
            None => (!app.is_closed().await.unwrap_or(false)).then(|| caller.clone()),
        }
    }
}

async fn sleep_until_expiry(caller: &TokenInfo) {
    match caller.expires_at {
        Some(at) => sleep(at.duration_since(Timestamp::now()).try_into().unwrap_or_default()).await,
        None => std::future::pending().await,
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
