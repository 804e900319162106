//! One call of an agent. The model is asked, its calls are run, and it is asked again, until it answers without a call
//! or a bound ends the run.
//!
//! A run that a bound ends has an error result (`is_error`) with the last text of the model. A model that cannot be
//! reached is a failure of the call. After the first tool call, such a failure does not permit a retry.

use bytesize::ByteSize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::Agent;
use super::completion::{Completion, Usage};
use super::endpoint::{LONGEST_COMPLAINT, Listener};
use super::turn::{self, Toolset};
use crate::call::{JsonObject, ModelUsage, ToolContext, ToolError, ToolInvoker, ToolResult, Torn};
use crate::tools::Values;

/// Longest conversation that is sent, in bytes of its JSON. It is several times what any model reads. Each request
/// copies the conversation.
const LONGEST_CONVERSATION: usize = 16 << 20;

/// One call of an agent, with its state.
pub(super) struct Run<'a> {
    agent: &'a Agent,
    context: &'a ToolContext,
    others: Option<&'a dyn ToolInvoker>,
    usage: ModelUsage,
    /// The end of its time budget, or of the call if that is earlier.
    end: Instant,
    /// The last text that the model wrote beside its calls.
    words: String,
    has_called: bool,
}

impl<'a> Run<'a> {
    pub(super) fn new(agent: &'a Agent, context: &'a ToolContext, others: Option<&'a dyn ToolInvoker>) -> Self {
        let budget = agent.budget.time.and_then(|time| Instant::now().checked_add(time.0));
        let end = budget.map_or(context.deadline, |end| end.min(context.deadline));
        let (usage, words) = (context.model_usage(), String::new());
        Self { agent, context, others, usage, end, words, has_called: false }
    }

    /// Runs the turns until there is an answer, or time is over.
    pub(super) async fn go(mut self, arguments: &JsonObject) -> Result<ToolResult, ToolError> {
        let (end, deadline) = (self.end, self.context.deadline);
        let done = timeout_at(end, self.turns(arguments)).await;
        match done {
            Ok(done) => done,
            Err(_) if end < deadline => Ok(self.stopped("its budget of time is used up")),
            // The deadline of the call is now. Wait for the stack, which ends the call with its own error.
            Err(_) => std::future::pending().await,
        }
    }

    async fn turns(&mut self, arguments: &JsonObject) -> Result<ToolResult, ToolError> {
        let tools = self.others.map(|others| Toolset::new(self.agent, self.context, others, self.end));
        let shown = tools.as_ref().map_or(&[][..], |tools| &tools.shown);
        let mut messages = self.agent.prompt.messages(Values { arguments, context: &self.context.context });
        for turn in 1..=self.agent.max_turns {
            let completion = self.ask(turn, &messages, shown).await?;
            let calls =
                turn::calls(&completion).map_err(|what| ToolError::BadOutput(format!("the model's answer {what}")))?;
            calls.warnings.iter().filter(|_| !calls.asks.is_empty()).for_each(|warning| self.context.warn(warning));
            self.tell(turn, &calls);
            if calls.asks.is_empty() {
                return Ok(self.last_words(&completion));
            }
            if let Some(text) = Some(completion.text()).filter(|text| !text.trim().is_empty()) {
                self.words = text;
            }
            if self.is_spent() {
                return Ok(self.stopped("its budget of tokens is used up"));
            }
            let is_last = turn == self.agent.max_turns;
            let Some(tools) = &tools else {
                return Ok(self.stopped("its model called tools, and it has none"));
            };
            // In the last turn the model does not read results. So run the calls only if a result can be the answer.
            if is_last && !tools.may_end(&calls) {
                break;
            }
            self.has_called = true;
            let done = tools.take(&calls).await;
            self.usage.total_tokens = self.usage.total_tokens.saturating_add(done.tokens);
            self.context.used_model(self.usage);
            if let Some(answer) = done.answer {
                return Ok(answer);
            }
            if self.is_spent() {
                return Ok(self.stopped("its budget of tokens is used up"));
            }
            messages.push(turn::echo(completion.message, &calls));
            messages.extend(done.messages);
            if length(&messages) > LONGEST_CONVERSATION {
                return Ok(self.stopped(&format!("it has more than {} to read", ByteSize(LONGEST_CONVERSATION as u64))));
            }
        }
        let turns = self.agent.max_turns;
        Ok(self.stopped(&format!("it had {turns} turns (`max_turns`) and still wants to call tools")))
    }

    async fn ask(&mut self, turn: u32, messages: &[Value], tools: &[Value]) -> Result<Completion, ToolError> {
        let mut telling = TextProgress { context: self.context, turn, text: String::new() };
        let asked = self.agent.endpoint.ask(messages, tools, self.context.trace(), self.end, &mut telling).await;
        telling.rest(asked.is_ok());
        let completion = asked.map_err(|error| self.failed(error))?;
        let estimate = || {
            let read = length(messages.iter().chain(tools));
            Usage::estimate(read, json!(completion.message).to_string().len())
        };
        let usage = completion.usage.unwrap_or_else(estimate);
        let all = &mut self.usage;
        all.requests += 1;
        all.estimated |= completion.usage.is_none();
        all.input_tokens = all.input_tokens.saturating_add(usage.input);
        all.output_tokens = all.output_tokens.saturating_add(usage.output);
        all.total_tokens = all.total_tokens.saturating_add(usage.input).saturating_add(usage.output);
        self.context.used_model(self.usage);
        Ok(completion)
    }

    /// Adapts a failure of the model's server. Before the first tool call nothing can have had an effect, so the whole
    /// call may be repeated. Later a repetition would call the tools again.
    fn failed(&self, error: ToolError) -> ToolError {
        match error {
            ToolError::Upstream { message, retryable, down, retry_after, .. } => {
                let called = self.has_called;
                let message = self.context.shortened(&message, LONGEST_COMPLAINT);
                let message = if called { format!("{message} (tools were called before)") } else { message };
                ToolError::Upstream { message, retryable: retryable && !called, down, untouched: !called, retry_after }
            }
            ToolError::BadOutput(message) => ToolError::BadOutput(self.context.shortened(&message, LONGEST_COMPLAINT)),
            other => other,
        }
    }

    fn is_spent(&self) -> bool {
        self.agent.budget.tokens.is_some_and(|most| self.usage.total_tokens >= most)
    }

    /// The result for a final answer of the model.
    fn last_words(&self, completion: &Completion) -> ToolResult {
        let text = completion.text();
        if let Some(refusal) = completion.refusal() {
            return ToolResult::error(format!("The agent's model refused: {refusal}"));
        }
        let incomplete = |why: &str| match text.trim() {
            "" => ToolResult::error(format!("The agent gave no answer: {why}.")),
            text => ToolResult::error(format!("{text}\n\n[The answer is not complete: {why}.]")),
        };
        if completion.is_cut() {
            return incomplete("the model reached its limit of tokens");
        }
        if completion.is_filtered() {
            return incomplete("the model's server held back what it said (content_filter)");
        }
        if text.trim().is_empty() {
            return ToolResult::error("The agent gave no answer: its model said nothing.");
        }
        let json = if self.agent.prompt.wants_json() { unfenced(&text) } else { text.trim() };
        match serde_json::from_str::<Value>(json) {
            Ok(value @ (Value::Object(_) | Value::Array(_))) => ToolResult::json(value),
            _ => ToolResult::text(text),
        }
    }

    /// The error result of a run that a bound ended.
    fn stopped(&self, why: &str) -> ToolResult {
        let so_far = match self.words.trim() {
            "" => String::new(),
            words => format!(" What it said so far:\n\n{words}"),
        };
        ToolResult::error(format!("The agent was stopped before it had an answer: {why}.{so_far}"))
    }

    fn tell(&self, turn: u32, calls: &crate::dialect::Message) {
        if self.context.is_watched() {
            let names: Vec<&str> = calls.asks.iter().filter_map(crate::dialect::name_of).collect();
            self.context.progress(json!({"turn": turn, "calls": names, "tokens": self.usage.total_tokens}));
        }
    }
}

/// The size of these values as JSON, in bytes.
fn length<'a>(values: impl IntoIterator<Item = &'a Value>) -> usize {
    values.into_iter().map(|value| value.to_string().len()).sum()
}

/// Removes the code fence that models like to put around JSON.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    inner.map_or(text, |inner| inner.strip_prefix("json").unwrap_or(inner).trim())
}

/// Reports the model's text as progress while it comes, in whole words. Text that may be the start of a secret is held
/// back, because the redactor does not find half a secret.
struct TextProgress<'a> {
    context: &'a ToolContext,
    turn: u32,
    text: String,
}

impl TextProgress<'_> {
    fn tell(&mut self, end: usize) {
        let rest = self.text.split_off(end);
        let text = std::mem::replace(&mut self.text, rest);
        if !text.is_empty() {
            self.context.progress(json!({"turn": self.turn, "text": text}));
        }
    }

    /// Reports the text that was held back. `is_whole`: the answer is complete.
    fn rest(&mut self, is_whole: bool) {
        if !is_whole {
            self.text = self.context.excerpt(self.text.as_bytes(), Torn::END);
        }
        self.tell(self.text.len());
    }
}

impl Listener for TextProgress<'_> {
    fn text(&mut self, text: &str) {
        if !self.context.is_watched() {
            return;
        }
        self.text.push_str(text);
        if let Some(end) = self.text.rfind(char::is_whitespace) {
            self.tell(self.context.settled(&self.text, end));
        }
    }

    fn again(&mut self, why: &str) {
        self.text.clear();
        let why = self.context.shortened(why, LONGEST_COMPLAINT);
        self.context.progress(json!({"turn": self.turn, "again": why}));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::call::{Event, ProgressSink, Reporter};
    use crate::secrets::Redactor;

    #[test]
    fn streamed_text_tells_no_part_of_a_secret() {
        let (sink, mut listener) = ProgressSink::channel();
        let (_, mut call) = crate::tools::http::tests::context();
        call.progress = Some(sink);
        let redactor = Arc::new(Redactor::new(["correct horse battery staple"]));
        let cleaner = redactor.clone();
        let reporter = Reporter::of(&call, || Box::new(move |data| cleaner.progress(data)));
        let context = ToolContext::new(&call, Instant::now(), Arc::default()).reporting(reporter).redacting(redactor);
        let mut told = |text: &str, is_whole: bool| {
            let mut telling = TextProgress { context: &context, turn: 1, text: String::new() };
            text.split_inclusive(' ').for_each(|piece| telling.text(piece));
            telling.rest(is_whole);
            let mut said = String::new();
            while let Some(Event::Progress(progress)) = listener.try_next() {
                let data: Value = serde_json::from_str(progress.data.get()).unwrap();
                said.push_str(data["text"].as_str().unwrap());
            }
            said
        };
        assert_eq!(
            told("the correct answer is correct horse battery staple here", true),
            "the correct answer is [redacted] here"
        );
        assert_eq!(told("it is a correct horse battery", true), "it is a correct horse battery", "it may be that");
        assert_eq!(told("it is a correct horse battery", false), "it is a ", "it broke off");
    }

    #[test]
    fn a_fence_around_json_is_taken_off() {
        for text in ["{\"n\": 1}", " {\"n\": 1}\n", "```json\n{\"n\": 1}\n```", "```\n{\"n\": 1}```"] {
            assert_eq!(unfenced(text), "{\"n\": 1}", "{text}");
        }
    }
}
