//! Selects the part of a long result that an answer shows.
//!
//! This layer is above `record`: the ledger, the cache and the idempotency keys hold whole results. Every answer is cut
//! for the requested page. So a page costs nothing, a repeated request gets the same bytes, and all interfaces (HTTP,
//! command line, library) show the same.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tower::{Layer, Service};

use super::output::OutputCheck;
use super::validate::ArgumentRules;
use crate::call::{
    Answer, CacheStatus, CallError, Cut, Detail, Invocation, LONGEST_TEXT, Overflow, Page, Paging, Rest, Unit, cut,
    may_be_cut,
};

/// How long the check of a part against the output schema may take. A part takes no more work than the whole result,
/// which was checked before.
const LONGEST_JUDGED: Duration = Duration::from_secs(5);

/// The [`Layer`] of [`Viewed`].
#[derive(Clone)]
pub struct ViewLayer(Arc<View>);

/// How the results of one tool are shown.
struct View {
    paging: Paging,
    /// Knows the arguments by which a model requests a page.
    rules: Arc<ArgumentRules>,
    /// The output schema that structured content must match even if it is cut.
    output: Option<OutputCheck>,
    /// Maximum length of a text that is shown whole, in characters.
    longest: usize,
    /// Whether the ledger keeps results in full, so that `GET /invocations/{id}/result` has them.
    is_kept: bool,
}

impl ViewLayer {
    /// Shows results of a tool with these rules and this output schema. If the operator raised the maximum length of a
    /// result, texts up to that length are shown whole. `is_kept`: the ledger keeps the results in full.
    pub fn new(paging: Paging, rules: &Arc<ArgumentRules>, output: Option<OutputCheck>, is_kept: bool) -> Self {
        let longest = rules.runner.max_output().unwrap_or_default().max(LONGEST_TEXT);
        Self(Arc::new(View { paging, rules: rules.clone(), output, longest, is_kept }))
    }

    /// Maximum length of a text that is shown whole, in characters.
    pub fn longest(&self) -> usize {
        self.0.longest
    }
}

impl<S> Layer<S> for ViewLayer {
    type Service = Viewed<S>;

    fn layer(&self, inner: S) -> Viewed<S> {
        Viewed { inner, view: self.0.clone() }
    }
}

/// The service of this layer: cuts the answer of the service below. See [`ViewLayer`].
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

    fn call(&mut self, mut invocation: Invocation) -> Self::Future {
        if self.view.rules.pages.is_some() {
            self.view.read_page(&mut invocation);
        }
        let (view, page, is_keyed) = (self.view.clone(), invocation.page.unwrap_or_default(), invocation.key.is_some());
        let call = self.inner.call(invocation);
        async move { Ok(view.of(call.await?, page, is_keyed).await) }.boxed()
    }
}

impl View {
    /// Takes the page out of the model's arguments. It takes precedence over the page in the request.
    fn read_page(&self, invocation: &mut Invocation) {
        if let Some(asked) = self.rules.take_page(Arc::make_mut(&mut invocation.arguments)) {
            invocation.page = Some(asked.page);
            invocation.page_arguments = Some(Arc::new(asked));
        }
    }

    async fn of(&self, mut answer: Answer, page: Page, is_keyed: bool) -> Answer {
        // A short error, such as "there is nothing more to read", is not a part of a result. So it is not cut at the
        // page's offset.
        let is_short = || !may_be_cut(&answer.result, None, self.longest);
        let page = match self.paging == Paging::Pages && answer.result.is_error && is_short() {
            true => Page::default(),
            false => page,
        };
        let Some(cut) = cut(&answer.result, page, self.longest) else { return answer };
        if let Some(misfit) = self.misfit(&cut).await {
            answer
                .meta
                .warnings
                .push(format!("the result is whole: a part of its list would break output_schema ({misfit})"));
            return answer;
        }
        let own = answer.result.hint.as_deref();
        let mut overflow = match self.words(&cut, page) {
            Some(words) => {
                let words = with_own(words, own);
                Overflow { for_model: Rest::Said(words.clone()), ..cut.overflow(words) }
            }
            None => {
                let hint = with_own(self.hint(&cut, page, &answer, is_keyed), own);
                Overflow { for_model: self.rest(&cut, page, own), ..cut.overflow(hint) }
            }
        };
        if is_last(&cut, page) {
            overflow.for_model = Rest::End;
        }
        answer.meta.overflow = Some(overflow);
        answer.result = Arc::new(cut.result);
        answer
    }

    /// The message that tells a model with paging arguments how to read on; `None` if the tool has no such arguments.
    fn words(&self, cut: &Cut, page: Page) -> Option<String> {
        let fields = self.rules.pages.as_ref().filter(|fields| fields.has_offset())?;
        if is_last(cut, page) {
            return Some(end(cut));
        }
        let detail = if fields.has_detail() { "\"detail_level\": \"full\", " } else { "" };
        let limit = page.limit.filter(|_| fields.has_limit());
        let limit = limit.map_or_else(String::new, |limit| format!(", \"limit\": {limit}"));
        let what = match page.detail {
            Detail::Full => "the next page",
            Detail::Exploring => "the rest",
        };
        let next = next_place(cut, page);
        Some(format!("For {what} call this tool again with the same arguments and {detail}\"offset\": {next}{limit}."))
    }

    /// How any other model can read the rest.
    fn rest(&self, cut: &Cut, page: Page, own: Option<&str>) -> Rest {
        match (self.is_kept, own) {
            (true, own) => Rest::Stored { offset: next_place(cut, page), hint: own.map(str::to_owned) },
            (false, Some(own)) => Rest::Said(own.to_owned()),
            (false, None) => Rest::Narrow,
        }
    }

    /// The violation of the output schema in this part. An error result has none. A part that cannot be checked in time
    /// is shown as it is, because the whole result was checked.
    async fn misfit(&self, cut: &Cut) -> Option<String> {
        let is_part = cut.unit == Unit::Items && !cut.result.is_error;
        let output = self.output.as_ref().filter(|_| is_part)?;
        let part = Arc::new(cut.result.clone());
        output.misfit(&part, Instant::now() + LONGEST_JUDGED).await.unwrap_or_default()
    }

    /// The message that tells a program how to get the part that is not shown.
    fn hint(&self, cut: &Cut, page: Page, answer: &Answer, is_keyed: bool) -> String {
        let Cut { shown, total, next_offset, .. } = *cut;
        let route = self.is_kept.then(|| format!("GET /invocations/{}/result", answer.invocation));
        let is_cached = !matches!(answer.meta.cache, CacheStatus::Off | CacheStatus::Bypass);
        // The next page is available without the tool from a stored result or under the idempotency key.
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
            (Detail::Full, None) => end(cut),
            (Detail::Exploring, _) => {
                let what = match cut.unit {
                    Unit::Items => "These are the first items",
                    Unit::Characters => "These are the beginning and the end",
                };
                match ways("\"page\": {\"detail\": \"full\"}".into(), String::new()) {
                    ways if ways.is_empty() => format!("{what}: ask for less at once."),
                    ways => format!("{what}: ask for less at once, or for all {total} {} {ways}.", unit(cut)),
                }
            }
        }
    }
}

/// Whether no page follows.
fn is_last(cut: &Cut, page: Page) -> bool {
    page.detail == Detail::Full && cut.next_offset.is_none()
}

/// Offset of the part that was not shown. If the beginning and the end of a text were shown, this is the offset of its
/// middle.
fn next_place(cut: &Cut, page: Page) -> usize {
    match (page.detail, cut.unit) {
        (Detail::Full, _) => cut.next_offset.unwrap_or(cut.total),
        (Detail::Exploring, Unit::Items) => cut.shown,
        (Detail::Exploring, Unit::Characters) => cut.shown.div_ceil(2),
    }
}

fn end(cut: &Cut) -> String {
    match cut.shown {
        0 => format!("Behind the end: there are {} {}.", cut.total, unit(cut)),
        _ => "This is the last page.".into(),
    }
}

fn unit(cut: &Cut) -> &'static str {
    match cut.unit {
        Unit::Items => "items",
        Unit::Characters => "characters",
    }
}

/// Appends the tool's own hint to ours.
fn with_own(words: String, own: Option<&str>) -> String {
    match own {
        Some(own) => format!("{words} {own}"),
        None => words,
    }
}
