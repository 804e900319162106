//! One call of an agent. Each turn requests an answer of the model and runs its calls, until an
//! answer has no call or a bound ends the run.
//!
//! A run that a bound ends has an error result (`is_error`) with the last text of the model. A
//! model that cannot be reached is a failure of the call. After the first tool call, such a failure
//! does not permit a retry.

use bytesize::ByteSize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::completion::{Completion, TokenUsage};
use super::config::Budget;
use super::coworkers::Prompt;
use super::endpoint::{AnswerListener, Endpoint, MAX_ERROR_TEXT_BYTES};
use super::turn::{self, CallableTools, Toolset};
use crate::call::{
    CutEnds, ErrorKind, JsonObject, ModelUsage, ToolContext, ToolError, ToolInvoker, ToolResult,
};
use crate::kinds::Values;

/// Longest conversation that is sent, in bytes of its JSON. It is several times what any model
/// reads. Each request copies the conversation.
const MAX_CONVERSATION_BYTES: usize = 16 << 20;

/// The parts of an agent, for all its calls.
pub(super) struct AgentRunner {
    pub(super) endpoint: Endpoint,
    pub(super) prompt: Prompt,
    pub(super) callable: CallableTools,
    /// Requests to the model in one call.
    pub(super) max_turns: u32,
    pub(super) budget: Budget,
}

/// One call of an agent, with its state.
pub(super) struct AgentRun<'a> {
    agent: &'a AgentRunner,
    context: &'a ToolContext,
    invoker: Option<&'a dyn ToolInvoker>,
    usage: ModelUsage,
    /// The end of its time budget, or of the call if that is earlier.
    end: Instant,
    /// The last text that the model wrote beside its calls.
    last_text: String,
    has_called_tools: bool,
}

impl<'a> AgentRun<'a> {
    pub(super) fn new(
        agent: &'a AgentRunner,
        context: &'a ToolContext,
        invoker: Option<&'a dyn ToolInvoker>,
    ) -> Self {
        let budget = agent
            .budget
            .time
            .and_then(|time| Instant::now().checked_add(time.0));
        let end = budget.map_or(context.deadline, |end| end.min(context.deadline));
        Self {
            agent,
            context,
            invoker,
            usage: context.model_usage(),
            end,
            last_text: String::new(),
            has_called_tools: false,
        }
    }

    /// Runs the turns until there is an answer, or time is over.
    pub(super) async fn run(mut self, arguments: &JsonObject) -> Result<ToolResult, ToolError> {
        let (end, deadline) = (self.end, self.context.deadline);
        let outcome = timeout_at(end, self.run_turns(arguments)).await;
        match outcome {
            Ok(outcome) => outcome,
            Err(_) if end < deadline => Ok(self.stopped_result("its budget of time is used up")),
            // The deadline of the call is now. Wait for the stack, which ends the call with its own
            // error.
            Err(_) => std::future::pending().await,
        }
    }

    async fn run_turns(&mut self, arguments: &JsonObject) -> Result<ToolResult, ToolError> {
        let tools = self
            .invoker
            .map(|invoker| Toolset::new(&self.agent.callable, self.context, invoker, self.end));
        let definitions = tools.as_ref().map_or(&[][..], |tools| &tools.definitions);
        let mut messages = self
            .agent
            .prompt
            .initial_messages(Values::for_call(arguments, self.context));
        for turn in 1..=self.agent.max_turns {
            let completion = self
                .request_completion(turn, &messages, definitions)
                .await?;
            let calls = turn::parse_calls(&completion)
                .map_err(|problem| ToolError::BadOutput(format!("the model's answer {problem}")))?;
            calls
                .warnings
                .iter()
                .filter(|_| !calls.calls.is_empty())
                .for_each(|warning| self.context.warn(warning));
            self.report_turn(turn, &calls);
            if calls.calls.is_empty() {
                return Ok(self.final_result(&completion));
            }
            if let Some(text) = Some(completion.text()).filter(|text| !text.trim().is_empty()) {
                self.last_text = text;
            }
            if self.is_over_budget() {
                return Ok(self.stopped_result("its budget of tokens is used up"));
            }
            let is_last = turn == self.agent.max_turns;
            let Some(tools) = &tools else {
                return Ok(self.stopped_result("its model called tools, but it has no tools"));
            };
            // In the last turn the model does not read results. So run the calls only if a result
            // can be the answer.
            if is_last && !tools.can_end_run(&calls) {
                break;
            }
            self.has_called_tools = true;
            let done = tools.run_calls(&calls).await;
            self.usage.total_tokens = self.usage.total_tokens.saturating_add(done.tokens);
            self.context.set_model_usage(self.usage);
            if let Some(answer) = done.answer {
                return Ok(answer);
            }
            if self.is_over_budget() {
                return Ok(self.stopped_result("its budget of tokens is used up"));
            }
            messages.push(turn::assistant_message(completion.message, &calls));
            messages.extend(done.messages);
            if json_len(&messages) > MAX_CONVERSATION_BYTES {
                return Ok(self.stopped_result(&format!(
                    "its conversation is longer than {}",
                    ByteSize(MAX_CONVERSATION_BYTES as u64)
                )));
            }
        }
        let turns = self.agent.max_turns;
        Ok(self.stopped_result(&format!(
            "it had {turns} turns (`max_turns`) and still wants to call tools"
        )))
    }

    async fn request_completion(
        &mut self,
        turn: u32,
        messages: &[Value],
        tools: &[Value],
    ) -> Result<Completion, ToolError> {
        let mut progress = TextProgress {
            context: self.context,
            turn,
            text: String::new(),
        };
        let started = Instant::now();
        let trace = self.context.model_request_trace(turn);
        let answer = self
            .agent
            .endpoint
            .request_completion(messages, tools, trace.as_deref(), self.end, &mut progress)
            .await;
        progress.flush(answer.is_ok());
        let (usage, error) = match &answer {
            Ok(completion) => (completion.usage, None),
            Err(_) => (None, Some(ErrorKind::UpstreamFailed.as_str())),
        };
        self.context.record_model_request(
            turn,
            &self.agent.endpoint.model,
            usage.map_or((0, 0), |usage| (usage.input, usage.output)),
            started,
            error,
        );
        let completion = answer.map_err(|error| self.adapt_error(error))?;
        let estimate = || {
            let input_bytes = json_len(messages.iter().chain(tools));
            TokenUsage::estimate_by_length(input_bytes, json!(completion.message).to_string().len())
        };
        let usage = completion.usage.unwrap_or_else(estimate);
        let total = &mut self.usage;
        total.requests += 1;
        total.estimated |= completion.usage.is_none();
        total.input_tokens = total.input_tokens.saturating_add(usage.input);
        total.output_tokens = total.output_tokens.saturating_add(usage.output);
        total.total_tokens = total
            .total_tokens
            .saturating_add(usage.input)
            .saturating_add(usage.output);
        self.context.set_model_usage(self.usage);
        Ok(completion)
    }

    /// Adapts a failure of the model's server. Before the first tool call nothing can have had an
    /// effect, so the whole call may be repeated. Later a repetition would call the tools again.
    fn adapt_error(&self, mut error: ToolError) -> ToolError {
        let adapt = |message: &str| {
            self.context
                .redact_and_shorten(message, MAX_ERROR_TEXT_BYTES)
        };
        match &mut error {
            ToolError::Upstream(failure) => {
                failure.message = adapt(&failure.message);
                if self.has_called_tools {
                    failure.message.push_str(" (tools were called before)");
                }
                failure.retryable &= !self.has_called_tools;
                failure.not_delivered = !self.has_called_tools;
            }
            ToolError::BadOutput(message) => *message = adapt(message),
            _ => {}
        }
        error
    }

    fn is_over_budget(&self) -> bool {
        self.agent
            .budget
            .tokens
            .is_some_and(|most| self.usage.total_tokens >= most)
    }

    /// The result for a final answer of the model.
    fn final_result(&self, completion: &Completion) -> ToolResult {
        let text = completion.text();
        if let Some(refusal) = completion.refusal() {
            return ToolResult::error(format!("The agent's model refused: {refusal}"));
        }
        let incomplete = |reason: &str| match text.trim() {
            "" => ToolResult::error(format!("The agent gave no answer: {reason}.")),
            text => ToolResult::error(format!("{text}\n\n[The answer is not complete: {reason}.]")),
        };
        match completion.finish_reason.as_deref() {
            Some("length") => return incomplete("the model reached its limit of tokens"),
            Some("content_filter") => {
                return incomplete(
                    "the content filter of the model's server removed the answer (content_filter)",
                );
            }
            _ => {}
        }
        if text.trim().is_empty() {
            return ToolResult::error("The agent gave no answer: its model returned no text.");
        }
        let json = if self.agent.prompt.requires_json {
            strip_code_fence(&text)
        } else {
            text.trim()
        };
        match serde_json::from_str::<Value>(json) {
            Ok(value @ (Value::Object(_) | Value::Array(_))) => ToolResult::json(value),
            _ => ToolResult::text(text),
        }
    }

    /// The error result of a run that a bound ended.
    fn stopped_result(&self, reason: &str) -> ToolResult {
        let last_text = match self.last_text.trim() {
            "" => String::new(),
            text => format!(" Output so far:\n\n{text}"),
        };
        ToolResult::error(format!(
            "The agent was stopped before it had an answer: {reason}.{last_text}"
        ))
    }

    fn report_turn(&self, turn: u32, calls: &toolcrib_dialect::Message) {
        if self.context.has_listener() {
            let names: Vec<&str> = calls
                .calls
                .iter()
                .filter_map(toolcrib_dialect::tool_name)
                .collect();
            self.context
                .progress(json!({"turn": turn, "calls": names, "tokens": self.usage.total_tokens}));
        }
    }
}

/// The size of these values as JSON, in bytes.
fn json_len<'a>(values: impl IntoIterator<Item = &'a Value>) -> usize {
    values
        .into_iter()
        .map(|value| value.to_string().len())
        .sum()
}

/// Removes the code fence that models like to put around JSON.
fn strip_code_fence(text: &str) -> &str {
    let text = text.trim();
    let inner = text
        .strip_prefix("```")
        .and_then(|rest| rest.strip_suffix("```"));
    inner.map_or(text, |inner| {
        inner.strip_prefix("json").unwrap_or(inner).trim()
    })
}

/// Reports the model's text as progress while it arrives, in whole words. Text that may be the
/// start of a secret is held back, because the redactor does not find half a secret.
struct TextProgress<'a> {
    context: &'a ToolContext,
    turn: u32,
    text: String,
}

impl TextProgress<'_> {
    fn report_text_up_to(&mut self, end: usize) {
        let remaining = self.text.split_off(end);
        let text = std::mem::replace(&mut self.text, remaining);
        if !text.is_empty() {
            self.context
                .progress(json!({"turn": self.turn, "text": text}));
        }
    }

    /// Reports the text that was held back. `is_whole`: the answer is complete.
    fn flush(&mut self, is_whole: bool) {
        if !is_whole {
            self.text = self.context.excerpt(self.text.as_bytes(), CutEnds::END);
        }
        self.report_text_up_to(self.text.len());
    }
}

impl AnswerListener for TextProgress<'_> {
    fn on_text(&mut self, text: &str) {
        if !self.context.has_listener() {
            return;
        }
        self.text.push_str(text);
        if let Some(end) = self.text.rfind(char::is_whitespace) {
            self.report_text_up_to(self.context.safe_split(&self.text, end));
        }
    }

    fn on_retry(&mut self, reason: &str) {
        self.text.clear();
        let reason = self
            .context
            .redact_and_shorten(reason, MAX_ERROR_TEXT_BYTES);
        self.context
            .progress(json!({"turn": self.turn, "again": reason}));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::call::{Event, ProgressSink};
    use crate::secrets::Redactor;

    #[test]
    fn streamed_progress_holds_no_part_of_secret() {
        let (sink, mut listener) = ProgressSink::channel();
        let (_, mut call) = crate::kinds::http::tests::test_context();
        call.delivery.progress = Some(sink);
        let redactor = Arc::new(Redactor::new(["correct horse battery staple"]));
        let context =
            ToolContext::new(&call, Instant::now(), Arc::default()).with_redactor(redactor);
        let mut reported = |text: &str, is_whole: bool| {
            let mut progress = TextProgress {
                context: &context,
                turn: 1,
                text: String::new(),
            };
            text.split_inclusive(' ')
                .for_each(|piece| progress.on_text(piece));
            progress.flush(is_whole);
            let mut text = String::new();
            while let Some(Event::Progress(progress)) = listener.try_next() {
                let data: Value = serde_json::from_str(progress.data.get()).unwrap();
                text.push_str(data["text"].as_str().unwrap());
            }
            text
        };
        assert_eq!(
            reported(
                "the correct answer is correct horse battery staple here",
                true
            ),
            "the correct answer is [redacted] here"
        );
        assert_eq!(
            reported("it is a correct horse battery", true),
            "it is a correct horse battery",
            "it may be that"
        );
        assert_eq!(
            reported("it is a correct horse battery", false),
            "it is a ",
            "it broke off"
        );
    }

    #[test]
    fn code_fence_around_json_is_removed() {
        for text in [
            "{\"n\": 1}",
            " {\"n\": 1}\n",
            "```json\n{\"n\": 1}\n```",
            "```\n{\"n\": 1}```",
        ] {
            assert_eq!(strip_code_fence(text), "{\"n\": 1}", "{text}");
        }
    }
}
