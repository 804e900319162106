//! Selects the part of a long result that an answer shows.
//!
//! This layer is above `record`: the ledger, the cache and the idempotency keys hold whole results.
//! Every answer is cut for the requested page. So a page costs nothing, a repeated request gets the
//! same bytes, and all interfaces (HTTP, command line, library) show the same.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::interceptor::{Inner, Interceptor};
use super::output_check::OutputCheck;
use super::validate::ArgumentRules;
use crate::call::{
    Answer, CacheStatus, CallError, CutResult, Detail, Incomplete, Invocation, MAX_TEXT_CHARS,
    Page, Paging, RestHint, ToolResult, Unit, cut_result, describe_shape, may_be_cut,
};

/// How long the check of a part against the output schema may take. A part takes no more work than
/// the whole result, which was checked before.
const MAX_CHECK_TIME: Duration = Duration::from_secs(5);

/// What is shown of a result that stays in the service: so many items of a list, or characters of a text.
const FIRST_ITEMS: usize = 5;
const FIRST_CHARS: usize = 1000;

/// The layer that shows the results of one tool.
pub struct Paginator {
    paging: Paging,
    /// Knows the arguments by which a model requests a page.
    rules: Arc<ArgumentRules>,
    /// The output schema that structured content must match even if it is cut.
    output: Option<OutputCheck>,
    /// Maximum length of a text that is shown whole, in characters.
    pub(super) max_chars: usize,
    /// Results of more characters are shown by their shape and beginning only.
    reference_above: Option<usize>,
    /// Whether the ledger keeps results in full, so that `GET /invocations/{id}/result` has them.
    is_recorded: bool,
}

impl Paginator {
    /// Shows results of a tool with these rules and this output schema. If the operator raised the
    /// maximum length of a result, texts up to that length are shown whole. `is_recorded`: the
    /// ledger keeps the results in full.
    pub fn new(
        paging: Paging,
        rules: &Arc<ArgumentRules>,
        output: Option<OutputCheck>,
        is_recorded: bool,
        reference_above: Option<usize>,
    ) -> Self {
        let longest = rules
            .runner
            .max_output()
            .unwrap_or_default()
            .max(MAX_TEXT_CHARS);
        Self {
            paging,
            rules: rules.clone(),
            output,
            max_chars: longest,
            reference_above: reference_above
                .filter(|_| is_recorded && paging != Paging::PagedReader),
            is_recorded,
        }
    }
}

impl Interceptor<Answer> for Paginator {
    async fn call<S: Inner<Answer>>(
        self: Arc<Self>,
        mut inner: S,
        mut invocation: Box<Invocation>,
    ) -> Result<Answer, CallError> {
        if self.rules.page_fields.is_some() {
            self.read_page(&mut invocation);
        }
        let page = invocation.paging.page.unwrap_or_default();
        let is_keyed = invocation.idempotency_key.is_some();
        let answer = inner.call(invocation).await?;
        Ok(self.paginate_answer(answer, page, is_keyed).await)
    }
}

impl Paginator {
    /// Takes the page out of the model's arguments. It takes precedence over the page in the
    /// request.
    fn read_page(&self, invocation: &mut Invocation) {
        if let Some(page_arguments) = self
            .rules
            .take_page(Arc::make_mut(&mut invocation.input.arguments))
        {
            // A script gets whole results, unless it asks for a page.
            if !invocation.call_chain.from_script || !page_arguments.raw.is_empty() {
                invocation.paging.page = Some(page_arguments.page);
            }
            invocation.paging.arguments = Some(Arc::new(page_arguments));
        }
    }

    async fn paginate_answer(&self, mut answer: Answer, page: Page, is_keyed: bool) -> Answer {
        // A short error, such as "there is nothing more to read", is not a part of a result. So it
        // is not cut at the page's offset.
        let is_short = || !may_be_cut(&answer.result, None, self.max_chars);
        let page = match self.paging == Paging::PagedReader && answer.result.is_error && is_short()
        {
            true => Page::default(),
            false => page,
        };
        let reference = self.find_reference(&answer, page);
        let (page, cut) = match &reference {
            Some((cut, _)) => (Page::default(), Some(cut.clone())),
            None => (page, cut_result(&answer.result, page, self.max_chars)),
        };
        let Some(cut) = cut else {
            answer.meta.overflow = answer.result.source_overflow();
            return answer;
        };
        if let Some(violation) = self.find_violation(&answer.result, &cut).await {
            answer.meta.warnings.push(format!(
                "the result is not cut: a part of it would break output_schema ({violation})"
            ));
            answer.meta.overflow = answer.result.source_overflow();
            return answer;
        }
        let tool_hint = answer.result.hint.as_deref();
        let own_hint = self.model_hint(&cut, page);
        let is_for_model = own_hint.is_some();
        let hint = own_hint.unwrap_or_else(|| self.caller_hint(&cut, page, &answer, is_keyed));
        let hint = append_hints(hint, &cut, tool_hint);
        let for_model = match reference {
            _ if is_last_page(&cut, page) => RestHint::LastPage,
            Some((_, Some(shape))) => RestHint::Reference(shape),
            _ if is_for_model => RestHint::Text(hint.clone()),
            _ => self.rest_hint(&cut, page, tool_hint),
        };
        answer.meta.overflow = Some(cut.to_overflow(for_model, hint));
        answer.result = Arc::new(cut.result);
        answer
    }

    /// The beginning of a result that is too long to be shown, and the shape of its data; `None`: it is shown.
    fn find_reference(&self, answer: &Answer, page: Page) -> Option<(CutResult, Option<String>)> {
        let result = &answer.result;
        let most = self.reference_above?;
        let structured = result.structured_content.as_ref();
        let length = structured.map_or(0, |value| value.to_string().len());
        if page != Page::default() || result.is_error || length.max(result.as_text().len()) <= most
        {
            return None;
        }
        let first = |limit| Page {
            limit: Some(limit),
            ..page
        };
        let Some(value) = structured else {
            return Some((cut_result(result, first(FIRST_CHARS), FIRST_CHARS)?, None));
        };
        let cut = cut_result(result, first(FIRST_ITEMS), FIRST_CHARS)
            .filter(|cut| cut.unit == Unit::Items && cut.result.as_text().len() <= most);
        let cut = cut.or_else(|| {
            // An object without a list, or of long items: its beginning as text.
            let text = ToolResult::text(value.to_string());
            cut_result(&text, first(FIRST_CHARS), FIRST_CHARS)
        });
        Some((cut?, Some(describe_shape(value))))
    }

    /// The message that tells a model with paging arguments how to read on; `None` if the tool has
    /// no such arguments.
    fn model_hint(&self, cut: &CutResult, page: Page) -> Option<String> {
        let fields = self
            .rules
            .page_fields
            .as_ref()
            .filter(|fields| fields.has_offset())?;
        if is_last_page(cut, page) {
            return Some(end_message(cut));
        }
        let detail = if fields.has_detail() {
            "\"detail_level\": \"full\", "
        } else {
            ""
        };
        let limit = page.limit.filter(|_| fields.has_limit());
        let limit = limit.map_or_else(String::new, |limit| format!(", \"limit\": {limit}"));
        let what = match page.detail {
            Detail::Full => "the next page",
            Detail::Exploring => "the rest",
        };
        let next = next_part_offset(cut, page);
        Some(format!(
            "For {what} call this tool again with the same arguments and {detail}\"offset\": {next}{limit}."
        ))
    }

    /// How any other model can read the rest.
    fn rest_hint(&self, cut: &CutResult, page: Page, tool_hint: Option<&str>) -> RestHint {
        match (self.is_recorded, tool_hint) {
            (true, tool_hint) => RestHint::Recorded {
                offset: next_part_offset(cut, page),
                hint: tool_hint.map(str::to_owned),
            },
            (false, Some(tool_hint)) => RestHint::Text(tool_hint.to_owned()),
            (false, None) => RestHint::Narrow,
        }
    }

    /// The violation of the output schema in this part. An error result has none, and neither has a
    /// result that breaks the schema as a whole. A part that cannot be checked in time is shown as
    /// it is, because the whole result was checked.
    async fn find_violation(&self, whole: &Arc<ToolResult>, cut: &CutResult) -> Option<String> {
        // Structured content that only wraps a text is cut, too.
        let is_part =
            cut.unit == Unit::Items || cut.result.structured_content != whole.structured_content;
        let output = (self.output.as_ref()).filter(|_| is_part && !cut.result.is_error)?;
        let until = Instant::now() + MAX_CHECK_TIME;
        let part = Arc::new(cut.result.clone());
        let violation = output
            .find_violation(&part, until)
            .await
            .unwrap_or_default()?;
        let of_whole = output.find_violation(whole, until).await;
        let was_broken = of_whole.is_ok_and(|found| found.is_some());
        (!was_broken).then_some(violation)
    }

    /// The message that tells a program how to get the part that is not shown.
    fn caller_hint(&self, cut: &CutResult, page: Page, answer: &Answer, is_keyed: bool) -> String {
        let CutResult {
            shown,
            total,
            next_offset,
            ..
        } = *cut;
        let route = self
            .is_recorded
            .then(|| format!("GET /invocations/{}/result", answer.invocation));
        let is_cached = !matches!(answer.meta.cache, CacheStatus::Off | CacheStatus::Bypass);
        // The next page is available without the tool from a stored result or under the idempotency
        // key.
        let repeat_call = match (is_keyed, is_cached && !answer.result.is_error) {
            (true, _) => Some("make the same call with its Idempotency-Key and "),
            (false, true) => Some("make the same call with "),
            (false, false) => None,
        };
        let alternatives = |paged: String, query: String| {
            let repeat_call = repeat_call.map(|call| format!("{call}{paged}"));
            let route = route.map(|route| format!("{route}{query}"));
            [repeat_call, route]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(", or ")
        };
        match (page.detail, next_offset) {
            (Detail::Full, Some(next)) => {
                let limit = page
                    .limit
                    .map_or_else(String::new, |limit| format!(", \"limit\": {limit}"));
                let paged =
                    format!("\"page\": {{\"detail\": \"full\", \"offset\": {next}{limit}}}");
                match alternatives(paged, format!("?offset={next}&limit={shown}")) {
                    alternatives if alternatives.is_empty() => {
                        "The rest is not kept: ask for less at once.".into()
                    }
                    alternatives => format!("For the next page {alternatives}."),
                }
            }
            (Detail::Full, None) => end_message(cut),
            (Detail::Exploring, _) => {
                let what = match cut.unit {
                    Unit::Items => "These are the first items",
                    Unit::Characters => "These are the beginning and the end",
                };
                match alternatives("\"page\": {\"detail\": \"full\"}".into(), String::new()) {
                    alternatives if alternatives.is_empty() => {
                        format!("{what}: ask for less at once.")
                    }
                    alternatives => {
                        format!(
                            "{what}: ask for less at once, or for all {total} {} {alternatives}.",
                            cut.unit
                        )
                    }
                }
            }
        }
    }
}

/// Whether no page follows.
fn is_last_page(cut: &CutResult, page: Page) -> bool {
    page.detail == Detail::Full && cut.next_offset.is_none()
}

/// Offset of the part that was not shown. If the beginning and the end of a text were shown, this
/// is the offset of its middle.
fn next_part_offset(cut: &CutResult, page: Page) -> usize {
    match (page.detail, cut.unit) {
        (Detail::Full, _) => cut.next_offset.unwrap_or(cut.total),
        (Detail::Exploring, Unit::Items) => cut.shown,
        (Detail::Exploring, Unit::Characters) => cut.shown.div_ceil(2),
    }
}

fn end_message(cut: &CutResult) -> String {
    match cut.shown {
        0 if cut.result.incomplete.is_some() => {
            format!(
                "Beyond the end: the tool returned only the first {} {}.",
                cut.total, cut.unit
            )
        }
        0 => format!("Beyond the end: there are {} {}.", cut.total, cut.unit),
        _ => "This is the last page.".into(),
    }
}

/// Appends what the tool itself left out, and the tool's own hint.
fn append_hints(hint: String, cut: &CutResult, tool_hint: Option<&str>) -> String {
    let missing = cut.result.incomplete.as_ref().map(Incomplete::explain);
    let further = missing.iter().map(String::as_str).chain(tool_hint);
    further.fold(hint, |hint, sentence| format!("{hint} {sentence}"))
}
