//! Runs the calls of one message side by side, and collects the results in the message's order.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use toolcrib_dialect::{
    Dialect, MalformedCall, Message, RawArguments, Repaired, ToolCall, ToolReply,
};

use super::answer::{CallProblem, CallResult, CallsAnswer, WaitingCall};
use super::ended_call::EndedCall;
use super::held_message::{HeldCall, HeldMessage};
use super::references;
use super::request::CallsRequest;
use crate::call::json::hash_parts;
use crate::call::request_fields::{CallOptions, MAX_ID_LEN};
use crate::call::units::Count;
use crate::call::{
    Answer, CallError, Caller, Capture, Content, Effect, ErrorKind, IdempotencyKey, InvocationId,
    ProgressSink, ToolName, TraceContext, UnreadableArguments,
};
use crate::catalog::registry::Registry;
use crate::catalog::{Catalog, Entry, NewCall};
use crate::http::api::tools::route::{api_error_for_call, resolve_tool};
use crate::http::api::wire::InvokeAnswer;
use crate::http::problem::{ApiError, Problem};
use crate::ledger::State;

/// Most tools in a reminder.
const MAX_REMINDER_TOOLS: usize = 50;

/// The request for one message: its caller, and the catalog that all its calls use.
pub(super) struct Turn {
    pub(super) registry: Arc<Registry>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) caller: Arc<Caller>,
    /// The idempotency key of this message.
    pub(super) key: Option<IdempotencyKey>,
    pub(super) request_id: Option<Arc<str>>,
    pub(super) trace: Option<Arc<TraceContext>>,
    /// Receives progress and results while the calls run.
    pub(super) progress: Option<ProgressSink>,
}

/// A valid message, and the outcomes of its calls.
pub(super) struct CompletedTurn {
    pub(super) message: Message,
    /// One for each call, in order.
    completed: Vec<CompletedCall>,
    /// A reminder of how to write calls, for a model that writes them as text.
    reminder: Option<String>,
    /// The catalog, if results of searches are references to its tools.
    references: Option<Arc<Catalog>>,
    /// The waiting calls for which the whole message is held.
    held: Vec<InvocationId>,
}

struct CompletedCall {
    /// The model's id for the call, as text.
    id: Option<Arc<str>>,
    outcome: CallOutcome,
}

enum CallOutcome {
    /// The tool ran, with or without an error result.
    Ran {
        entry: Arc<Entry>,
        answer: Box<Answer>,
        /// The content for the model, if it differs from the result: a cut result has a note on how
        /// to read more.
        model_content: Option<Vec<Content>>,
    },
    /// The tool did not run, or failed.
    Failed {
        problem: Box<Problem>,
        reason: FailureReason,
    },
}

/// Why a call failed, as far as it matters to the turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FailureReason {
    /// There is no such tool.
    UnknownTool,
    /// The call, or its arguments, could not be read.
    Unreadable,
    /// A stored failure of an earlier call with the same key was replayed.
    Replayed,
    /// Anything else.
    Other,
}

impl Turn {
    /// Runs the calls of the message. A failure of one call is that call's outcome, and does not
    /// affect the others.
    pub(super) async fn run_calls(
        &self,
        message: Message,
        request: &CallsRequest,
    ) -> CompletedTurn {
        let parallel = request
            .parallel
            .unwrap_or(self.catalog.call_settings().parallel)
            .max(1);
        let calls = message
            .calls
            .iter()
            .enumerate()
            .map(|(index, call)| async move {
                let completed = self.run_call(index, call, request).await;
                if let Some(progress) = &self.progress {
                    progress.send_event("call_result", &completed.to_result(call));
                }
                (index, completed)
            });
        let calls: Vec<_> = calls.collect();
        // Unordered, so that each call that ends makes room for the next, and a slow call delays no
        // other. Dropping this future also drops the calls that have not started.
        let mut numbered: Vec<(usize, CompletedCall)> = stream::iter(calls)
            .buffer_unordered(parallel)
            .collect()
            .await;
        numbered.sort_unstable_by_key(|(index, _)| *index);
        let mut completed: Vec<CompletedCall> =
            numbered.into_iter().map(|(_, call)| call).collect();
        self.count_unreadable(&mut completed, request);
        let reminder = self.format_reminder(&message, &completed, request);
        let mut turn = CompletedTurn {
            message,
            completed,
            reminder,
            references: None,
            held: Vec::new(),
        };
        if references::are_used(&self.catalog, &self.caller, turn.message.dialect) {
            turn.references = Some(self.catalog.clone());
        }
        if request.holds {
            self.hold(&mut turn).await;
        }
        turn
    }

    /// Holds the results of a message with waiting calls. If they cannot be stored, the answer is
    /// the one of a message that is not held.
    async fn hold(&self, turn: &mut CompletedTurn) {
        if let Some(waiting) = self.find_earlier_hold(turn).await {
            turn.held = waiting;
            return;
        }
        let held = turn.to_held();
        let waiting: Vec<InvocationId> = held.waiting().collect();
        let shared = self.registry.shared();
        let is_memory_only = turn.completed.iter().any(|call| match &call.outcome {
            CallOutcome::Ran { entry, .. } => {
                entry.policy.capture.unwrap_or(shared.capture) == Capture::Digest
            }
            CallOutcome::Failed { .. } => false,
        });
        match held.store(&self.registry, is_memory_only).await {
            Ok(()) => turn.held = waiting,
            Err(error) => {
                let warning = format!("waiting: the message could not be held: {error}");
                turn.message.warnings.push(warning);
            }
        }
    }

    /// The waiting calls of the same message, if an earlier request with the same key holds it: its
    /// client may not have received the ids.
    async fn find_earlier_hold(&self, turn: &CompletedTurn) -> Option<Vec<InvocationId>> {
        let id_in_progress = |call: &CompletedCall| match &call.outcome {
            CallOutcome::Failed { problem, .. }
                if problem.kind == ErrorKind::IdempotencyInProgress =>
            {
                problem.invocation_id.as_ref()?.parse().ok()
            }
            _ => None,
        };
        let id: InvocationId = turn.completed.iter().find_map(id_in_progress)?;
        let held = HeldMessage::find(&self.registry, id).await.ok()??;
        Some(held.waiting().collect())
    }

    /// Counts the unreadable messages of a run in a row. After `max_parse_attempts` of them, the
    /// model is instructed to make no more calls.
    fn count_unreadable(&self, calls: &mut [CompletedCall], request: &CallsRequest) {
        let runs = &self.registry.shared().runs;
        let unreadable = |call: &CompletedCall| {
            matches!(
                call.outcome,
                CallOutcome::Failed {
                    reason: FailureReason::Unreadable,
                    ..
                }
            )
        };
        if !calls.iter().any(unreadable) {
            if !calls.is_empty() {
                runs.reset_malformed(&self.caller.name, request.options.run_id.as_deref());
            }
            return;
        }
        let times = runs.count_malformed(&self.caller.name, request.options.run_id.as_deref());
        let attempts = &self.catalog.call_settings().max_parse_attempts;
        if times >= attempts.for_model(&request.model) {
            for call in calls {
                if let CallOutcome::Failed {
                    problem,
                    reason: FailureReason::Unreadable,
                } = &mut call.outcome
                {
                    problem.content = vec![Content::text(stop_calling_text(times))];
                }
            }
        }
    }

    /// The reminder of how to write calls, after every `format_reminder_every` uses of tools by a
    /// model that writes them as text.
    fn format_reminder(
        &self,
        message: &Message,
        calls: &[CompletedCall],
        request: &CallsRequest,
    ) -> Option<String> {
        let every = self.catalog.call_settings().format_reminder_every;
        if message.dialect != Dialect::Text || every == 0 {
            return None;
        }
        let runs = &self.registry.shared().runs;
        let ran = calls
            .iter()
            .filter(|call| matches!(call.outcome, CallOutcome::Ran { .. }));
        let uses: Vec<u32> = ran
            .map(|_| runs.count_text_use(&self.caller.name, request.options.run_id.as_deref()))
            .collect();
        uses.iter().any(|uses| uses % every == 0).then(|| {
            let entries = self.catalog.tools_for(&self.caller);
            let usable = entries
                .iter()
                .filter(|entry| entry.is_available() && !request.deny.denies(entry.names()));
            let names: Vec<&str> = usable
                .map(|entry| entry.definition.name.as_str())
                .take(MAX_REMINDER_TOOLS)
                .collect();
            toolcrib_dialect::text::syntax_reminder(message.syntax, &names)
        })
    }

    async fn run_call(
        &self,
        index: usize,
        call: &Result<ToolCall, MalformedCall>,
        request: &CallsRequest,
    ) -> CompletedCall {
        let id: Option<Arc<str>> = toolcrib_dialect::call_id(call).map(|id| match id {
            Value::String(text) => text.as_str().into(),
            other => other.to_string().into(),
        });
        let outcome = match call {
            Ok(call) => self.invoke_tool(index, call, id.as_ref(), request).await,
            Err(malformed) => Err(ApiError::UnreadableCall {
                detail: malformed.fault.clone(),
                correction: malformed.correction.clone(),
            }),
        };
        let outcome = outcome.unwrap_or_else(|error| {
            let reason = match error {
                ApiError::UnknownTool { .. } => FailureReason::UnknownTool,
                ApiError::UnreadableCall { .. } => FailureReason::Unreadable,
                _ => FailureReason::Other,
            };
            CallOutcome::Failed {
                problem: Box::new(error.into()),
                reason,
            }
        });
        CompletedCall { id, outcome }
    }

    /// The name that the catalog knows. If the caller has tools of the namespace, such as
    /// `crm_get`, the name stands for one of them. Otherwise the client has grouped its tools itself.
    fn name_in_namespace<'c>(&self, call: &'c ToolCall) -> Cow<'c, str> {
        let Some(namespace) = &call.namespace else {
            return Cow::Borrowed(&call.name);
        };
        let begins = |name: &ToolName| {
            let rest = name.as_str().strip_prefix(namespace.as_str());
            rest.is_some_and(|rest| rest.starts_with(['_', '.', '-']))
        };
        let tools = self.catalog.tools_for(&self.caller);
        let has_namespace = tools.iter().any(|entry| entry.names().any(begins));
        if !has_namespace {
            return Cow::Borrowed(&call.name);
        }
        let dotted = format!("{namespace}.{}", call.name);
        match self.catalog.resolve(&dotted, &self.caller) {
            Ok(_) => dotted.into(),
            Err(_) => format!("{namespace}_{}", call.name).into(),
        }
    }

    async fn invoke_tool(
        &self,
        position: usize,
        call: &ToolCall,
        id: Option<&Arc<str>>,
        request: &CallsRequest,
    ) -> Result<CallOutcome, ApiError> {
        let name = self.name_in_namespace(call);
        let (entry, name_match) = resolve_tool(&self.catalog, &name, &self.caller)?;
        let may_close = entry.policy.effect != Effect::Write;
        let repaired = match call.doubtful && !may_close {
            true => Err(refuse_after_unreadable()),
            false => {
                let arguments = arguments_of_input(&call.arguments, &entry);
                toolcrib_dialect::read_arguments(&arguments, call.cut_off, may_close)
            }
        };
        let (arguments, repairs) = match repaired {
            Ok(Repaired { arguments, repairs }) => (Ok(arguments), repairs),
            Err(unreadable) => (Err(unreadable), Vec::new()),
        };
        let options = CallOptions {
            // A longer id is not recorded, but the reply to the model still has it.
            tool_use_id: id.filter(|id| id.len() <= MAX_ID_LEN).cloned(),
            ..request.options.clone()
        };
        // The key of a message protects the calls of tools that take keys.
        let key = self.key.as_ref().filter(|_| entry.takes_idempotency_keys());
        let (found, now) = ((&*name, name_match), self.registry.shared().clock.now());
        let mut invocation = entry.new_invocation(NewCall {
            repairs,
            options,
            idempotency_key: key.map(|key| call_key(key, position, id)),
            request_id: self.request_id.clone(),
            trace: self.trace.clone(),
            ..NewCall::new(found, self.caller.clone(), arguments, now)
        });
        invocation.delivery.progress = self.progress.clone();
        invocation.call_chain.denied = request.deny.denies(entry.names());
        invocation.call_chain.deny = request.deny.to_texts();
        let invocation_id = invocation.id;
        match self.registry.invoke(&entry, invocation).await {
            Ok(answer) => Ok(CallOutcome::Ran {
                model_content: answer.model_content(|| {
                    let may_use = |entry: &Entry| !request.deny.denies(entry.names());
                    self.catalog.find_result_reader(&self.caller, may_use)
                }),
                entry,
                answer: Box::new(answer),
            }),
            Err(error) => {
                let reason = match error {
                    CallError::UnreadableArguments(_) => FailureReason::Unreadable,
                    CallError::StoredFailure { replayed: true, .. } => FailureReason::Replayed,
                    _ => FailureReason::Other,
                };
                Ok(CallOutcome::Failed {
                    problem: Box::new(api_error_for_call(&error, &entry, invocation_id).into()),
                    reason,
                })
            }
        }
    }
}

/// The arguments of a call. The input of a custom tool is the one text parameter of the tool.
fn arguments_of_input<'c>(arguments: &'c RawArguments, entry: &Entry) -> Cow<'c, RawArguments> {
    let RawArguments::Input(input) = arguments else {
        return Cow::Borrowed(arguments);
    };
    let properties = entry.definition.input_schema.get("properties");
    let texts = properties.and_then(Value::as_object).into_iter().flatten();
    let mut texts =
        texts.filter(|(_, schema)| schema.get("type").is_some_and(|kind| kind == "string"));
    match (texts.next(), texts.next()) {
        (Some((name, _)), None) => {
            let object = [(name.clone(), Value::from(input.as_str()))]
                .into_iter()
                .collect();
            Cow::Owned(RawArguments::Object(object))
        }
        _ => Cow::Borrowed(arguments),
    }
}

/// Derives a call's key from the message's key and the model's id for the call, or its position if
/// there is no id.
///
/// Calls of one message need different keys, or one would replay the other. When the same message
/// is sent again, its calls must get the same keys again.
fn call_key(key: &IdempotencyKey, position: usize, id: Option<&Arc<str>>) -> IdempotencyKey {
    let key = key.to_arc();
    let text = match id.filter(|id| !id.is_empty()) {
        Some(id) => format!("{key}/{id}"),
        None => format!("{key}#{position}"),
    };
    let digest = || IdempotencyKey::from_digest(hash_parts([key.as_bytes(), text.as_bytes()]));
    IdempotencyKey::parse(text.as_bytes()).unwrap_or_else(|_| digest())
}

/// Refuses a `write` call that follows an unreadable one. It may be quoted text inside the
/// unreadable call.
fn refuse_after_unreadable() -> UnreadableArguments {
    UnreadableArguments {
        detail: "an earlier call could not be read completely, and this call may be a part of it".into(),
        correction: "This call did not run, because the call before it could not be read. Send both calls again."
            .into(),
    }
}

fn stop_calling_text(times: u32) -> String {
    format!(
        "Your tool calls could not be read {} in a row. Call no more tools: answer with what you know, and say \
         what you could not find out.",
        Count(times, "time")
    )
}

/// Adds a reminder to the last message, which is a text of a model without tool calls.
pub(super) fn append_reminder(messages: &mut [Value], reminder: Option<&str>) {
    if let Some(reminder) = reminder
        && let Some(Value::String(content)) = messages
            .last_mut()
            .and_then(|message| message.get_mut("content"))
    {
        content.push_str("\n\n");
        content.push_str(reminder);
    }
}

impl CompletedTurn {
    /// The whole answer.
    pub(super) fn to_answer(&self) -> CallsAnswer<'_> {
        let calls = self.message.calls.iter().zip(&self.completed);
        let results: Vec<CallResult<'_>> = calls
            .map(|(call, completed)| completed.to_result(call))
            .collect();
        let is_answer = |result: &CallResult<'_>| matches!(result, CallResult::Answer(answer) if answer.result_as_answer);
        CallsAnswer {
            dialect: self.message.dialect,
            messages: self.messages(),
            result_as_answer: results.iter().any(is_answer),
            results,
            warnings: self.message.warnings.clone(),
            waiting: Some(&*self.held).filter(|held| !held.is_empty()),
        }
    }

    /// The message with its results, to be stored.
    fn to_held(&self) -> HeldMessage {
        let calls = self.message.calls.iter().zip(&self.completed);
        let calls = calls.map(|(call, completed)| match &completed.outcome {
            CallOutcome::Ran { answer, .. } if answer.waiting => {
                HeldCall::Waiting(answer.invocation)
            }
            _ => {
                let reply = completed.to_reply(call.is_err());
                HeldCall::Ended(Box::new(EndedCall {
                    content: reply.content.to_vec(),
                    structured: reply.structured.cloned(),
                    is_error: reply.is_error,
                    is_final_answer: reply.is_final_answer,
                    is_invalid_call: reply.is_invalid_call,
                    result: json!(completed.to_result(call)),
                }))
            }
        });
        HeldMessage::new(&self.message, self.reminder.clone(), calls.collect())
    }

    /// The messages to append to the conversation. A held message has none yet.
    fn messages(&self) -> Vec<Value> {
        if !self.held.is_empty() {
            return Vec::new();
        }
        let calls = self.message.calls.iter().zip(&self.completed);
        let replies: Vec<ToolReply<'_>> = calls
            .map(|(call, completed)| completed.to_reply(call.is_err()))
            .collect();
        let mut messages = toolcrib_dialect::write_replies(&self.message, &replies);
        for call in &self.completed {
            if let (Some(catalog), Some(id)) = (&self.references, &call.id)
                && let CallOutcome::Ran { entry, answer, .. } = &call.outcome
                && entry.finds_tools()
                && let Some(found) = &answer.result.structured_content
            {
                references::write(&mut messages, catalog, id, found);
            }
        }
        append_reminder(&mut messages, self.reminder.as_deref());
        messages
    }

    /// Whether all tools ran without an error result.
    pub(super) fn is_ok(&self) -> bool {
        self.completed
            .iter()
            .all(|call| matches!(&call.outcome, CallOutcome::Ran { answer, .. } if !answer.result.is_error))
    }

    /// Whether all calls were replayed.
    pub(super) fn is_replayed(&self) -> bool {
        let replayed = |call: &CompletedCall| match &call.outcome {
            CallOutcome::Ran { answer, .. } => answer.replayed,
            CallOutcome::Failed { reason, .. } => *reason == FailureReason::Replayed,
        };
        !self.completed.is_empty() && self.completed.iter().all(replayed)
    }
}

impl CompletedCall {
    /// The result of the call, as in the route's answer.
    fn to_result<'a>(&'a self, call: &'a Result<ToolCall, MalformedCall>) -> CallResult<'a> {
        match &self.outcome {
            CallOutcome::Ran { entry, answer, .. } if answer.waiting => {
                CallResult::Waiting(WaitingCall {
                    state: State::Waiting,
                    invocation_id: answer.invocation,
                    tool: entry.definition.name.as_str(),
                    tool_use_id: answer.tool_use_id.as_deref(),
                    is_error: false,
                    content: &answer.result.content,
                })
            }
            CallOutcome::Ran {
                entry,
                answer,
                model_content,
                ..
            } => {
                let content = model_content.as_deref().map(Cow::Borrowed);
                CallResult::Answer(InvokeAnswer::for_entry(entry, answer, content))
            }
            CallOutcome::Failed { problem, .. } => CallResult::Problem(CallProblem {
                tool: toolcrib_dialect::tool_name(call),
                tool_use_id: self.id.as_deref(),
                problem,
            }),
        }
    }

    /// The reply to the model. `is_unreadable`: the text could not be read as a call.
    fn to_reply(&self, is_unreadable: bool) -> ToolReply<'_> {
        match &self.outcome {
            CallOutcome::Ran {
                entry,
                answer,
                model_content,
                ..
            } => ToolReply {
                content: model_content.as_deref().unwrap_or(&answer.result.content),
                structured: answer.result.structured_content.as_ref(),
                is_error: answer.result.is_error,
                is_final_answer: answer.result.is_answer(entry.definition.result_as_answer),
                is_invalid_call: false,
            },
            CallOutcome::Failed { problem, reason } => ToolReply {
                content: &problem.content,
                structured: None,
                is_error: true,
                is_final_answer: false,
                is_invalid_call: is_unreadable || *reason == FailureReason::UnknownTool,
            },
        }
    }
}
