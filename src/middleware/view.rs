//! What an answer shows of a long result.
//!
//! Above the record: ledger, cache and idempotency keys hold what the tool said, all of it, and every answer is cut
//! anew for the page that was asked for. So a page costs nothing, asking again gives the same bytes, and whoever
//! calls (HTTP, the command line, a program) is shown the same.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tower::{Layer, Service};

use super::output::OutputCheck;
use crate::call::{Answer, CacheStatus, CallError, Cut, Detail, Invocation, LONGEST_TEXT, Page, Unit, cut};

/// A part of a result is held against the output schema for so long: it is no more than was held against it before.
const LONGEST_JUDGED: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Clone)]
pub struct ViewLayer(Arc<View>);

/// How one tool's results are shown.
struct View {
    /// What structured content has to fit, also when it is cut.
    output: Option<OutputCheck>,
    /// Characters of a text that are shown whole.
    longest: usize,
    /// Whether the ledger keeps results, so that `GET /invocations/{id}/result` has them.
    is_kept: bool,
}

impl ViewLayer {
    /// Shows results of a tool with this output schema. `max_output`: what the operator raised the longest result to,
    /// in bytes; texts of that length were asked for. `is_kept`: the ledger holds the results.
    pub fn new(output: Option<OutputCheck>, max_output: Option<usize>, is_kept: bool) -> Self {
        let longest = max_output.unwrap_or_default().max(LONGEST_TEXT);
        Self(Arc::new(View { output, longest, is_kept }))
    }
}

impl<S> Layer<S> for ViewLayer {
    type Service = Viewed<S>;

    fn layer(&self, inner: S) -> Viewed<S> {
        Viewed { inner, view: self.0.clone() }
    }
}

/// See the module.
#[derive(Clone)]
pub struct Viewed<S> {
    inner: S,
    view: Arc<View>,
}

impl<S> Service<Invocation> for Viewed<S>
where
    S: Service<Invocation, Response = Answer, Error = CallError>,
    S::Future: Send + 'static,
{
    type Response = Answer;
    type Error = CallError;
    type Future = BoxFuture<'static, Result<Answer, CallError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, invocation: Invocation) -> Self::Future {
        let (view, page, is_keyed) = (self.view.clone(), invocation.page.unwrap_or_default(), invocation.key.is_some());
        let call = self.inner.call(invocation);
        async move { Ok(view.of(call.await?, page, is_keyed).await) }.boxed()
    }
}

impl View {
    async fn of(&self, mut answer: Answer, page: Page, is_keyed: bool) -> Answer {
        let Some(cut) = cut(&answer.result, page, self.longest) else { return answer };
        if let Some(misfit) = self.misfit(&cut).await {
            answer
                .meta
                .warnings
                .push(format!("the result is whole: a part of its list would break output_schema ({misfit})"));
            return answer;
        }
        answer.meta.overflow = Some(cut.overflow(self.hint(&cut, page, &answer, is_keyed)));
        answer.result = Arc::new(cut.result);
        answer
    }

    /// Why this part is not what the tool promises; one that says no promises nothing. A part that cannot be judged in
    /// time is shown as it is: the whole was judged.
    async fn misfit(&self, cut: &Cut) -> Option<String> {
        let is_part = cut.unit == Unit::Items && !cut.result.is_error;
        let output = self.output.as_ref().filter(|_| is_part)?;
        let part = Arc::new(cut.result.clone());
        output.misfit(&part, Instant::now() + LONGEST_JUDGED).await.unwrap_or_default()
    }

    /// How to come by what is not shown.
    fn hint(&self, cut: &Cut, page: Page, answer: &Answer, is_keyed: bool) -> String {
        let Cut { shown, total, next_offset, .. } = *cut;
        let unit = match cut.unit {
            Unit::Items => "items",
            Unit::Characters => "characters",
        };
        let route = self.is_kept.then(|| format!("GET /invocations/{}/result", answer.invocation));
        let is_cached = !matches!(answer.meta.cache, CacheStatus::Off | CacheStatus::Bypass);
        // Where the next page can be had without the tool: its stored result, or the one that its key stands for.
        let again = match (is_keyed, is_cached && !answer.result.is_error) {
            (true, _) => Some("make the same call with its Idempotency-Key and "),
            (false, true) => Some("make the same call with "),
            (false, false) => None,
        };
        let ways = |paged: String, query: String| {
            let again = again.map(|call| format!("{call}{paged}"));
            let route = route.map(|route| format!("{route}{query}"));
            [again, route].into_iter().flatten().collect::<Vec<_>>().join(", or ")
        };
        match (page.detail, next_offset) {
            (Detail::Full, Some(next)) => {
                let limit = page.limit.map_or_else(String::new, |limit| format!(", \"limit\": {limit}"));
                let paged = format!("\"page\": {{\"detail\": \"full\", \"offset\": {next}{limit}}}");
                match ways(paged, format!("?offset={next}&limit={shown}")) {
                    ways if ways.is_empty() => "The rest is not kept: ask for less at once.".into(),
                    ways => format!("For the next page {ways}."),
                }
            }
            (Detail::Full, None) if shown == 0 => format!("Behind the end: there are {total} {unit}."),
            (Detail::Full, None) => "This is the last page.".into(),
            (Detail::Exploring, _) => {
                let what = match cut.unit {
                    Unit::Items => "These are the first items",
                    Unit::Characters => "These are the beginning and the end",
                };
                match ways("\"page\": {\"detail\": \"full\"}".into(), String::new()) {
                    ways if ways.is_empty() => format!("{what}: ask for less at once."),
                    ways => format!("{what}: ask for less at once, or for all {total} {unit} {ways}."),
                }
            }
        }
    }
}
