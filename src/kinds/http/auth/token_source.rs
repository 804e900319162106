//! Keeps one access token: requests it once for all calls, renews it before it ends, and replaces
//! it when a server refuses it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use reqwest::header::HeaderValue;
use tokio::time::{Instant, timeout};

use super::super::address_policy::AddressPolicy;
use super::config::OauthConfig;
use super::token_endpoint::{Grant, RequestToken, TokenEndpoint};
use crate::call::ToolError;
use crate::secrets::Redactor;

/// Longest time for one token request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// A token is renewed this long before its end, or a fifth of its lifetime if that is shorter.
/// Calls use the old token meanwhile.
const RENEWAL_TIME: Duration = Duration::from_secs(60);
/// A token is not used any more this long before its end, or a tenth of its lifetime if that is
/// shorter. The request takes time to reach the server.
const FINAL_TIME: Duration = Duration::from_secs(10);
/// A refusal by the token endpoint is the answer for all calls of this time. It would not answer
/// otherwise, and many servers lock clients that fail often.
const REFUSAL_TIME: Duration = Duration::from_secs(10);
/// After a failed renewal, the next one begins after this time.
const RENEWAL_PAUSE: Duration = Duration::from_secs(5);
/// Tokens that servers refuse are replaced at most once in this time. A server that refuses every
/// token must not cause a token request for each call.
const REPLACEMENT_INTERVAL: Duration = Duration::from_secs(10);

/// The longest message of a failure.
const MAX_MESSAGE_BYTES: usize = 1000;

/// The redactor that learns the tokens. It is set when the service starts.
pub(super) type SharedRedactor = Arc<ArcSwapOption<Redactor>>;

/// An access token.
#[derive(Debug)]
pub(crate) struct Token {
    /// The value of the `authorization` header.
    pub(crate) header: HeaderValue,
    renew_at: Instant,
    usable_until: Instant,
}

/// Gives the access token of one client.
pub(crate) struct TokenSource {
    endpoint: Box<dyn RequestToken>,
    redactor: SharedRedactor,
    state: Mutex<State>,
}

type TokenRequest = Shared<BoxFuture<'static, Result<Arc<Token>, ToolError>>>;

#[derive(Default)]
struct State {
    token: Option<Arc<Token>>,
    /// The newest refresh token.
    refresh_token: Option<String>,
    /// The request that runs now.
    request: Option<TokenRequest>,
    /// The last failure, and its time, if no request has succeeded since.
    failure: Option<(ToolError, Instant)>,
    /// When a refused token was replaced.
    replaced_at: Option<Instant>,
    /// The secrets of the last two answers. The redactor knows them.
    secrets: [Vec<String>; 2],
}

impl TokenSource {
    /// A source without a token yet.
    pub(super) fn new(
        endpoint: impl RequestToken,
        refresh_token: Option<String>,
        redactor: SharedRedactor,
    ) -> Arc<Self> {
        let state = State {
            refresh_token,
            ..State::default()
        };
        Arc::new(Self {
            endpoint: Box::new(endpoint),
            redactor,
            state: state.into(),
        })
    }

    /// The token. Waits for a new token only if no usable one is kept.
    pub(crate) async fn get(self: &Arc<Self>) -> Result<Arc<Token>, ToolError> {
        let request = {
            let (mut state, now) = (self.state.lock(), Instant::now());
            let token = state.token.clone().filter(|token| now < token.usable_until);
            match (token, &state.failure) {
                (Some(token), failure) => {
                    let is_paused = |(_, at): &(_, Instant)| now < *at + RENEWAL_PAUSE;
                    if now >= token.renew_at && !failure.as_ref().is_some_and(is_paused) {
                        let _running = self.join_request(&mut state);
                    }
                    return Ok(token);
                }
                (None, Some((ToolError::Upstream(refusal), at)))
                    if !refusal.retryable && now < *at + REFUSAL_TIME =>
                {
                    return Err(ToolError::Upstream(refusal.clone()));
                }
                (None, _) => self.join_request(&mut state),
            }
        };
        request.await
    }

    /// A token in place of one that a server has refused. `None` if tokens are refused too often.
    pub(crate) async fn replace(
        self: &Arc<Self>,
        refused: &Arc<Token>,
    ) -> Result<Option<Arc<Token>>, ToolError> {
        {
            let (mut state, now) = (self.state.lock(), Instant::now());
            // Another call may have replaced it already.
            if state
                .token
                .as_ref()
                .is_some_and(|token| Arc::ptr_eq(token, refused))
            {
                if state
                    .replaced_at
                    .is_some_and(|at| now < at + REPLACEMENT_INTERVAL)
                {
                    return Ok(None);
                }
                (state.token, state.replaced_at) = (None, Some(now));
            }
        }
        self.get().await.map(Some)
    }

    /// The running request, or a new one. It runs in a task of its own: a call that is cancelled
    /// must not lose a refresh token that the server has already replaced.
    fn join_request(self: &Arc<Self>, state: &mut State) -> TokenRequest {
        // A request that has ended is only left here by a panic.
        if let Some(request) = state
            .request
            .as_ref()
            .filter(|request| request.peek().is_none())
        {
            return request.clone();
        }
        let task = tokio::spawn(self.clone().request());
        let failed = |_| {
            Err(
                ToolError::upstream("no access token: the request failed within this service")
                    .not_delivered(),
            )
        };
        let request = task
            .map(move |ended| ended.unwrap_or_else(failed))
            .boxed()
            .shared();
        state.request = Some(request.clone());
        request
    }

    async fn request(self: Arc<Self>) -> Result<Arc<Token>, ToolError> {
        let refresh_token = self.state.lock().refresh_token.clone();
        let asked_at = Instant::now();
        let requested = timeout(
            REQUEST_TIMEOUT,
            self.endpoint.request_token(refresh_token.as_deref()),
        )
        .await;
        let result = requested.unwrap_or_else(|_| {
            let seconds = REQUEST_TIMEOUT.as_secs();
            let message = format!(
                "no access token: the token endpoint did not answer within {seconds} seconds"
            );
            Err(ToolError::upstream(message).not_delivered())
        });
        let result = result
            .inspect(|grant| self.tell_redactor(grant))
            .map_err(|error| self.redact_error(error));
        let mut state = self.state.lock();
        state.request = None;
        match result {
            Ok(Grant {
                header,
                lifetime,
                refresh_token,
                ..
            }) => {
                if refresh_token.is_some() {
                    state.refresh_token = refresh_token;
                }
                let token = Arc::new(Token {
                    header,
                    renew_at: asked_at + lifetime.saturating_sub(RENEWAL_TIME.min(lifetime / 5)),
                    usable_until: asked_at + lifetime.saturating_sub(FINAL_TIME.min(lifetime / 10)),
                });
                (state.token, state.failure) = (Some(token.clone()), None);
                Ok(token)
            }
            Err(error) => {
                if state.token.is_some() {
                    // No call waits for this request, so no call reports its failure.
                    tracing::warn!(target: "toolcrib::oauth", "an access token was not renewed: {error}");
                }
                state.failure = Some((error.clone(), Instant::now()));
                Err(error)
            }
        }
    }

    /// Lets the redactor know the tokens of an answer before any request carries them. It forgets
    /// those of the answer before the last: the last ones may still be in requests and results.
    fn tell_redactor(&self, grant: &Grant) {
        let secrets: Vec<String> = std::iter::once(&grant.access_token)
            .chain(&grant.refresh_token)
            .cloned()
            .collect();
        let before_last = {
            let mut state = self.state.lock();
            let last = std::mem::replace(&mut state.secrets[0], secrets.clone());
            std::mem::replace(&mut state.secrets[1], last)
        };
        // Not under the lock, because it takes milliseconds and calls wait for the lock.
        if let Some(redactor) = &*self.redactor.load() {
            redactor.replace_temporary_secrets(&before_last, &secrets);
        }
    }

    /// The error without secrets: a token endpoint may repeat the request.
    fn redact_error(&self, error: ToolError) -> ToolError {
        match &*self.redactor.load() {
            Some(redactor) => error.map_upstream_message(|message| {
                redactor.redact_and_shorten(message, MAX_MESSAGE_BYTES)
            }),
            None => error,
        }
    }
}

/// The redactor knows tokens only as long as a tool may use them.
impl Drop for TokenSource {
    fn drop(&mut self) {
        let secrets = std::mem::take(&mut self.state.get_mut().secrets);
        if let Some(redactor) = &*self.redactor.load() {
            redactor.replace_temporary_secrets(&secrets.concat(), &[]);
        }
    }
}

/// The token sources of one service. Tools with equal settings share one source, also across
/// reloads: a refresh token that the server has replaced must not be lost with the tool that
/// received its successor. Clones share the sources.
#[derive(Clone, Default)]
pub struct TokenSources(Arc<Inner>);

#[derive(Default)]
struct Inner {
    redactor: SharedRedactor,
    /// Weak, so that a source ends with the last tool that uses it.
    by_settings: Mutex<HashMap<(OauthConfig, AddressPolicy), Weak<TokenSource>>>,
}

impl TokenSources {
    /// Sets the redactor that learns all tokens from now on.
    pub(crate) fn set_redactor(&self, redactor: &Arc<Redactor>) {
        self.0.redactor.store(Some(redactor.clone()));
    }

    /// The source of the tokens of this endpoint, whose client has this policy.
    pub(super) fn get(&self, endpoint: TokenEndpoint, policy: AddressPolicy) -> Arc<TokenSource> {
        let mut by_settings = self.0.by_settings.lock();
        let key = (endpoint.config.clone(), policy);
        if let Some(known) = by_settings.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        by_settings.retain(|_, source| source.strong_count() > 0);
        let refresh_token = endpoint.config.refresh_token.clone();
        let source = TokenSource::new(endpoint, refresh_token, self.0.redactor.clone());
        by_settings.insert(key, Arc::downgrade(&source));
        source
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use arc_swap::ArcSwapOption;
    use async_trait::async_trait;
    use tokio::time::{advance, sleep};

    use super::*;
    use crate::secrets::Redactor;

    /// What an endpoint answers: a token with this lifetime in seconds and perhaps a refresh token,
    /// or a failure.
    type Answer = Result<(u64, Option<&'static str>), ToolError>;

    /// A token endpoint that needs a second for each answer.
    struct Endpoint {
        requests: Arc<AtomicU32>,
        seen: Arc<Mutex<Vec<Option<String>>>>,
        answer: Box<dyn Fn(u32) -> Answer + Send + Sync>,
    }

    #[async_trait]
    impl RequestToken for Endpoint {
        async fn request_token(&self, refresh_token: Option<&str>) -> Result<Grant, ToolError> {
            let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
            self.seen.lock().push(refresh_token.map(str::to_owned));
            sleep(Duration::from_secs(1)).await;
            (self.answer)(number).map(|(seconds, refresh_token)| Grant {
                header: HeaderValue::from_str(&format!("Bearer access-token-{number}")).unwrap(),
                access_token: format!("access-token-{number}"),
                lifetime: Duration::from_secs(seconds),
                refresh_token: refresh_token.map(str::to_owned),
            })
        }
    }

    struct Fixture {
        source: Arc<TokenSource>,
        requests: Arc<AtomicU32>,
        seen: Arc<Mutex<Vec<Option<String>>>>,
        redactor: Arc<Redactor>,
    }

    fn fixture(
        refresh_token: Option<&str>,
        answer: impl Fn(u32) -> Answer + Send + Sync + 'static,
    ) -> Fixture {
        let (requests, seen) = (Arc::new(AtomicU32::new(0)), Arc::default());
        let endpoint = Endpoint {
            requests: requests.clone(),
            seen: Arc::clone(&seen),
            answer: Box::new(answer),
        };
        let redactor = Arc::new(Redactor::new(["a-lasting-secret"]));
        let shared = Arc::new(ArcSwapOption::from(Some(redactor.clone())));
        Fixture {
            source: TokenSource::new(endpoint, refresh_token.map(str::to_owned), shared),
            requests,
            seen,
            redactor,
        }
    }

    impl Fixture {
        async fn token(&self) -> Result<String, ToolError> {
            self.source
                .get()
                .await
                .map(|token| token.header.to_str().unwrap().to_owned())
        }

        fn requests(&self) -> u32 {
            self.requests.load(Ordering::Relaxed)
        }
    }

    fn refusal() -> ToolError {
        ToolError::upstream_permanent(
            "no access token: `auth.example` refused the request: invalid_client",
        )
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_calls_share_one_request() {
        let fixture = fixture(None, |_| Ok((3600, None)));
        let calls = futures_util::future::join_all((0..50).map(|_| fixture.token())).await;
        assert!(
            calls
                .iter()
                .all(|token| token.as_deref() == Ok("Bearer access-token-1")),
            "{calls:?}"
        );
        assert_eq!(fixture.requests(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn token_is_renewed_before_its_end() {
        let fixture = fixture(None, |_| Ok((3600, None)));
        fixture.token().await.unwrap();
        advance(Duration::from_secs(3600 - 66)).await;
        fixture.token().await.unwrap();
        sleep(Duration::from_secs(3)).await;
        assert_eq!(fixture.requests(), 1);
        advance(Duration::from_secs(3)).await;
        assert_eq!(
            fixture.token().await.unwrap(),
            "Bearer access-token-1",
            "no call waits for the renewal"
        );
        sleep(Duration::from_secs(2)).await;
        assert_eq!(
            (fixture.token().await.unwrap().as_str(), fixture.requests()),
            ("Bearer access-token-2", 2)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn short_token_is_used_for_most_of_its_life() {
        let fixture = fixture(None, |_| Ok((20, None)));
        fixture.token().await.unwrap();
        advance(Duration::from_secs(12)).await;
        assert_eq!(fixture.token().await.unwrap(), "Bearer access-token-1");
        sleep(Duration::from_secs(2)).await;
        assert_eq!(fixture.requests(), 1);
        advance(Duration::from_secs(2)).await;
        assert_eq!(fixture.token().await.unwrap(), "Bearer access-token-1");
        advance(Duration::from_secs(2)).await;
        assert_eq!(fixture.token().await.unwrap(), "Bearer access-token-2");
    }

    #[tokio::test(start_paused = true)]
    async fn ended_token_is_never_used() {
        let fixture = fixture(None, |_| Ok((100, None)));
        fixture.token().await.unwrap();
        advance(Duration::from_secs(91)).await;
        assert_eq!(fixture.token().await.unwrap(), "Bearer access-token-2");
    }

    #[tokio::test(start_paused = true)]
    async fn failed_renewal_keeps_the_token() {
        let fixture = fixture(None, |number| {
            if number == 1 {
                Ok((100, None))
            } else {
                Err(refusal())
            }
        });
        fixture.token().await.unwrap();
        advance(Duration::from_secs(82)).await;
        for _ in 0..5 {
            assert_eq!(fixture.token().await.unwrap(), "Bearer access-token-1");
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(fixture.requests(), 2, "the next renewal waits");
        advance(Duration::from_secs(10)).await;
        assert_eq!(fixture.token().await, Err(refusal()));
    }

    #[tokio::test(start_paused = true)]
    async fn refused_token_is_replaced_once() {
        let fixture = fixture(None, |_| Ok((3600, None)));
        let token = fixture.source.get().await.unwrap();
        let replaced =
            futures_util::future::join_all((0..20).map(|_| fixture.source.replace(&token))).await;
        assert!(
            replaced
                .iter()
                .all(|next| next.as_ref().unwrap().as_ref().unwrap().header
                    == "Bearer access-token-2")
        );
        let next = replaced[0].clone().unwrap().unwrap();
        assert!(
            fixture.source.replace(&next).await.unwrap().is_none(),
            "a server that refuses every token"
        );
        assert_eq!(fixture.requests(), 2);
        advance(REPLACEMENT_INTERVAL).await;
        assert!(fixture.source.replace(&next).await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn new_refresh_token_replaces_the_old_one() {
        let fixture = fixture(Some("refresh-0"), |number| {
            Ok((
                100,
                Some(if number == 1 {
                    "refresh-1"
                } else {
                    "refresh-2"
                }),
            ))
        });
        for _ in 0..3 {
            fixture.token().await.unwrap();
            advance(Duration::from_secs(100)).await;
        }
        let expected = ["refresh-0", "refresh-1", "refresh-2"].map(|token| Some(token.to_owned()));
        assert_eq!(*fixture.seen.lock(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_call_does_not_stop_the_request() {
        let fixture = fixture(Some("refresh-0"), |_| Ok((100, Some("refresh-1"))));
        assert!(
            timeout(Duration::from_millis(10), fixture.token())
                .await
                .is_err()
        );
        sleep(Duration::from_secs(1)).await;
        assert_eq!(
            (fixture.token().await.unwrap().as_str(), fixture.requests()),
            ("Bearer access-token-1", 1)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_are_remembered_and_outages_are_not() {
        let refused = fixture(None, |_| Err(refusal()));
        for _ in 0..10 {
            assert_eq!(refused.token().await, Err(refusal()));
        }
        assert_eq!(refused.requests(), 1);
        advance(REFUSAL_TIME).await;
        refused.token().await.unwrap_err();
        assert_eq!(refused.requests(), 2);
        let outage = fixture(None, |number| {
            if number == 1 {
                Err(ToolError::upstream("down"))
            } else {
                Ok((9, None))
            }
        });
        outage.token().await.unwrap_err();
        assert_eq!(outage.token().await.unwrap(), "Bearer access-token-2");
    }

    #[tokio::test(start_paused = true)]
    async fn panic_is_an_ordinary_failure() {
        let fixture = fixture(None, |_| panic!("a failure within the endpoint"));
        let error = fixture.token().await.unwrap_err();
        assert!(
            error.to_string().contains("failed within this service"),
            "{error}"
        );
        assert!(
            fixture.token().await.is_err(),
            "the next call requests again"
        );
        assert_eq!(fixture.requests(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn redactor_knows_current_tokens() {
        let fixture = fixture(Some("refresh-token-0"), |_| {
            Ok((100, Some("refresh-token-1")))
        });
        let shown = |text: &str| fixture.redactor.redact_text(text).into_owned();
        for number in 1..=3 {
            fixture.token().await.unwrap();
            assert_eq!(shown(&format!("access-token-{number}")), "[redacted]");
            advance(Duration::from_secs(100)).await;
        }
        assert_eq!(
            shown("access-token-1 access-token-2 access-token-3"),
            "access-token-1 [redacted] [redacted]"
        );
        let redactor = fixture.redactor.clone();
        drop(fixture);
        assert_eq!(
            redactor.redact_text("access-token-3 a-lasting-secret"),
            "access-token-3 [redacted]"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn failures_show_no_secret() {
        let fixture = fixture(None, |_| {
            Err(ToolError::upstream_permanent(
                "no access token: bad a-lasting-secret",
            ))
        });
        assert_eq!(
            fixture.token().await.unwrap_err().to_string(),
            "no access token: bad [redacted]"
        );
    }
}
