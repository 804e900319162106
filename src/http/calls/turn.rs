//! Runs the calls of one message side by side, and collects the results in the message's order.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use serde_json::Value;

use super::answer::{CallProblem, CallResult};
use super::request::CallsRequest;
use crate::call::fields::MAX_ID;
use crate::call::json::digest;
use crate::call::units::Count;
use crate::call::{
    Answer, CallError, Caller, Content, Effect, Idempotency, IdempotencyKey, InvalidArguments, JsonObject,
    ProgressSink, ToolName, TraceContext,
};
use crate::catalog::{Catalog, Entry};
use crate::dialect::{self, Dialect, MalformedCall, Message, Repaired, ToolCall, ToolReply};
use crate::http::problem::{ApiError, Problem};
use crate::http::tools::{failed, resolve};
use crate::http::wire::{InvokeAnswer, InvokeRequest};
use crate::registry::Registry;

/// Most tools in a reminder.
const MOST_NAMED: usize = 50;

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
pub(super) struct Answered {
    pub(super) message: Message,
    /// One for each call, in order.
    outcomes: Vec<Outcome>,
    /// A reminder of how to write calls, for a model that writes them as text.
    reminder: Option<String>,
}

struct Outcome {
    /// The model's id for the call, as text.
    id: Option<Arc<str>>,
    came: CallOutcome,
}

enum CallOutcome {
    /// The tool ran, with or without an error result.
    Ran {
        entry: Arc<Entry>,
        answer: Box<Answer>,
        /// The content for the model, if it differs from the result: a cut result has a note on how to read more.
        shown: Option<Vec<Content>>,
    },
    /// The tool did not run, or failed.
    Failed { problem: Box<Problem>, why: RefusalReason },
}

/// Why a call failed, as far as it matters to the turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RefusalReason {
    /// There is no such tool.
    Unknown,
    /// The call, or its arguments, could not be read.
    Misread,
    /// A stored failure of an earlier call with the same key was replayed.
    Again,
    /// Anything else.
    Other,
}

impl Turn {
    /// Runs the calls of the message. A failure of one call is that call's outcome, and does not affect the others.
    pub(super) async fn take(&self, message: Message, asked: &CallsRequest) -> Answered {
        let parallel = asked.parallel.unwrap_or(self.catalog.calls().parallel).max(1);
        let calls = message.asks.iter().enumerate().map(|(index, ask)| async move {
            let outcome = self.outcome(index, ask, asked).await;
            if let Some(told) = &self.progress {
                told.tell("call_result", &outcome.result(ask));
            }
            (index, outcome)
        });
        let calls: Vec<_> = calls.collect();
        // Unordered, so that each call that ends makes room for the next, and a slow call delays no other. Dropping
        // this future also drops the calls that have not started.
        let mut outcomes: Vec<(usize, Outcome)> = stream::iter(calls).buffer_unordered(parallel).collect().await;
        outcomes.sort_unstable_by_key(|(index, _)| *index);
        let mut outcomes: Vec<Outcome> = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
        self.count_misreadings(&mut outcomes, asked);
        let reminder = self.reminder(&message, &outcomes, asked);
        Answered { message, outcomes, reminder }
    }

    /// Counts the unreadable messages of a run in a row. After `max_parse_attempts` of them, the model is told to make
    /// no more calls.
    fn count_misreadings(&self, outcomes: &mut [Outcome], asked: &CallsRequest) {
        let runs = &self.registry.shared().runs;
        let misread =
            |outcome: &Outcome| matches!(outcome.came, CallOutcome::Failed { why: RefusalReason::Misread, .. });
        if !outcomes.iter().any(misread) {
            if !outcomes.is_empty() {
                runs.understood(&self.caller.name, asked.run_id.as_deref());
            }
            return;
        }
        let times = runs.misread(&self.caller.name, asked.run_id.as_deref());
        if times >= self.catalog.calls().max_parse_attempts {
            for outcome in outcomes {
                if let CallOutcome::Failed { problem, why: RefusalReason::Misread } = &mut outcome.came {
                    problem.content = vec![Content::text(give_up(times))];
                }
            }
        }
    }

    /// The reminder of how to write calls, after every `format_reminder_every` uses of tools by a model that writes
    /// them as text.
    fn reminder(&self, message: &Message, outcomes: &[Outcome], asked: &CallsRequest) -> Option<String> {
        let every = self.catalog.calls().format_reminder_every;
        if message.dialect != Dialect::Text || every == 0 {
            return None;
        }
        let runs = &self.registry.shared().runs;
        let ran = outcomes.iter().filter(|outcome| matches!(outcome.came, CallOutcome::Ran { .. }));
        let uses: Vec<u32> = ran.map(|_| runs.used(&self.caller.name, asked.run_id.as_deref())).collect();
        uses.iter().any(|uses| uses % every == 0).then(|| {
            let entries = self.catalog.list(&self.caller);
            let usable = entries.iter().filter(|entry| entry.is_available() && !asked.deny.denies(entry.names()));
            let names: Vec<&str> = usable.map(|entry| entry.definition.name.as_str()).take(MOST_NAMED).collect();
            dialect::text::reminder(message.form, &names)
        })
    }

    async fn outcome(&self, index: usize, ask: &Result<ToolCall, MalformedCall>, asked: &CallsRequest) -> Outcome {
        let id: Option<Arc<str>> = dialect::id_of(ask).map(|id| match id {
            Value::String(text) => text.as_str().into(),
            other => other.to_string().into(),
        });
        let came = match ask {
            Ok(ask) => self.run(index, ask, id.as_ref(), asked).await,
            Err(misread) => Err(unreadable(misread)),
        };
        let came = came.unwrap_or_else(|error| {
            let why = match error {
                ApiError::UnknownTool { .. } => RefusalReason::Unknown,
                ApiError::Misread { .. } => RefusalReason::Misread,
                _ => RefusalReason::Other,
            };
            CallOutcome::Failed { problem: Box::new(error.into()), why }
        });
        Outcome { id, came }
    }

    /// The tool with which the model can read the rest of a cut result.
    fn reader(&self, asked: &CallsRequest) -> Option<ToolName> {
        self.catalog.reader(&self.caller, |entry| !asked.deny.denies(entry.names()))
    }

    async fn run(
        &self,
        place: usize,
        ask: &ToolCall,
        id: Option<&Arc<str>>,
        asked: &CallsRequest,
    ) -> Result<CallOutcome, ApiError> {
        let (entry, how) = resolve(&self.catalog, &ask.name, &self.caller)?;
        let may_close = entry.policy.effect != Effect::Write;
        let mended = match ask.doubtful && !may_close {
            true => Err(doubtful()),
            false => dialect::arguments(&ask.arguments, ask.cut_off, may_close),
        };
        let (mended, unreadable) = match mended {
            Ok(mended) => (mended, None),
            Err(unreadable) => {
                (Repaired { arguments: JsonObject::new(), repairs: Vec::new() }, Some(Arc::new(unreadable)))
            }
        };
        let request = InvokeRequest {
            arguments: mended.arguments,
            // A longer id is not recorded, but the reply to the model still has it.
            tool_use_id: id.filter(|id| id.len() <= MAX_ID).map(|id| id.to_string()),
            run_id: asked.run_id.clone(),
            context: asked.context.clone(),
            cache: asked.cache,
            timeout: asked.timeout,
            page: asked.page,
        };
        let mut invocation = request.into_invocation(&self.registry, &entry, &ask.name, self.caller.clone());
        invocation.unreadable = unreadable;
        invocation.progress = self.progress.clone();
        invocation.request_id = self.request_id.clone();
        invocation.trace = self.trace.clone();
        invocation.denied = asked.deny.denies(entry.names());
        invocation.lineage.deny = asked.deny.written();
        if entry.policy.idempotency != Idempotency::Off {
            invocation.key = self.key.as_ref().map(|key| key_of_call(key, place, id));
        }
        let spelled = how.warning(&ask.name, &entry);
        if spelled.is_some() || !mended.repairs.is_empty() {
            invocation.notes.lock().meta.warnings.extend(spelled.into_iter().chain(mended.repairs));
        }
        let invocation_id = invocation.id;
        match self.registry.invoke(&entry, invocation).await {
            Ok(answer) => Ok(CallOutcome::Ran {
                shown: answer.with_overflow(|| self.reader(asked)),
                entry,
                answer: Box::new(answer),
            }),
            Err(error) => {
                let why = match error {
                    CallError::UnreadableArguments(_) => RefusalReason::Misread,
                    CallError::Kept { again: true, .. } => RefusalReason::Again,
                    _ => RefusalReason::Other,
                };
                Ok(CallOutcome::Failed { problem: Box::new(failed(&error, &entry, invocation_id).into()), why })
            }
        }
    }
}

/// Derives a call's key from the message's key and the model's id for the call, or its position if there is no id.
///
/// Calls of one message need different keys, or one would replay the other. When the same message is sent again, its
/// calls must get the same keys again.
fn key_of_call(key: &IdempotencyKey, place: usize, id: Option<&Arc<str>>) -> IdempotencyKey {
    let key = key.shared();
    let whole = match id.filter(|id| !id.is_empty()) {
        Some(id) => format!("{key}/{id}"),
        None => format!("{key}#{place}"),
    };
    let digest = || IdempotencyKey::of_digest(digest([key.as_bytes(), whole.as_bytes()]));
    IdempotencyKey::parse(whole.as_bytes()).unwrap_or_else(|_| digest())
}

/// Refuses a `write` call that follows an unreadable one. It may be quoted text inside the unreadable call.
fn doubtful() -> InvalidArguments {
    InvalidArguments {
        what: "a call before it could not be read to its end, so it may be part of that one".into(),
        correction: "This call did not run, since the one before it could not be read. Send both again.".into(),
    }
}

fn give_up(times: u32) -> String {
    format!(
        "Your tool calls could not be read {} in a row. Call no more tools: answer with what you know, and say \
         what you could not find out.",
        Count(times, "time")
    )
}

fn unreadable(misread: &MalformedCall) -> ApiError {
    ApiError::Misread { detail: misread.what.clone(), correction: misread.correction.clone() }
}

impl Answered {
    /// The results of the calls, as in the route's answer.
    pub(super) fn results(&self) -> impl Iterator<Item = CallResult<'_>> {
        self.message.asks.iter().zip(&self.outcomes).map(|(ask, outcome)| outcome.result(ask))
    }

    /// The messages to append to the conversation.
    pub(super) fn messages(&self) -> Vec<Value> {
        let asks = self.message.asks.iter().zip(&self.outcomes);
        let said: Vec<ToolReply<'_>> = asks.map(|(ask, outcome)| outcome.said(ask.is_err())).collect();
        let mut messages = dialect::reply(&self.message, &said);
        if let Some(reminder) = &self.reminder
            && let Some(Value::String(content)) = messages.last_mut().and_then(|message| message.get_mut("content"))
        {
            content.push_str("\n\n");
            content.push_str(reminder);
        }
        messages
    }

    /// Whether all tools ran without an error result.
    pub(super) fn is_ok(&self) -> bool {
        self.outcomes
            .iter()
            .all(|outcome| matches!(&outcome.came, CallOutcome::Ran { answer, .. } if !answer.result.is_error))
    }

    /// Whether all calls were replayed.
    pub(super) fn is_replayed(&self) -> bool {
        let replayed = |outcome: &Outcome| match &outcome.came {
            CallOutcome::Ran { answer, .. } => answer.replayed,
            CallOutcome::Failed { why, .. } => *why == RefusalReason::Again,
        };
        !self.outcomes.is_empty() && self.outcomes.iter().all(replayed)
    }
}

impl Outcome {
    /// The result of the call, as in the route's answer.
    fn result<'a>(&'a self, ask: &'a Result<ToolCall, MalformedCall>) -> CallResult<'a> {
        match &self.came {
            CallOutcome::Ran { entry, answer, .. } => CallResult::Answer(InvokeAnswer::of(entry, answer)),
            CallOutcome::Failed { problem, .. } => CallResult::Problem(CallProblem {
                tool: dialect::name_of(ask),
                tool_use_id: self.id.as_deref(),
                problem,
            }),
        }
    }

    /// The reply to the model. `is_none`: the text could not be read as a call.
    fn said(&self, is_none: bool) -> ToolReply<'_> {
        match &self.came {
            CallOutcome::Ran { entry, answer, shown, .. } => ToolReply {
                content: shown.as_deref().unwrap_or(&answer.result.content),
                structured: answer.result.structured_content.as_ref(),
                is_error: answer.result.is_error,
                is_answer: answer.result.is_answer(entry.definition.result_as_answer),
                is_no_call: false,
            },
            CallOutcome::Failed { problem, why } => ToolReply {
                content: &problem.content,
                structured: None,
                is_error: true,
                is_answer: false,
                is_no_call: is_none || *why == RefusalReason::Unknown,
            },
        }
    }
}
