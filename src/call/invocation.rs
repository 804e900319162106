//! One call as data.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolcrib_dialect::UnreadableArguments;

use super::approval_stage::{ApprovalStage, waiting_result};
use super::call_chain::CallChain;
use super::caller::Caller;
use super::capture::RecordedArguments;
use super::definition::ToolName;
use super::error::CallError;
use super::idempotency::IdempotencyKey;
use super::invocation_id::InvocationId;
use super::json::JsonObject;
use super::meta::Meta;
use super::paging::{Page, PageArguments};
use super::progress::ProgressSink;
use super::question::QuestionSink;
use super::report::CallReport;
use super::result::Answer;
use super::trace::{CallTrace, McpRequest, TraceContext};

/// How a call uses the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheMode {
    /// A stored result may be the answer.
    #[default]
    Use,
    /// Run, and replace what is stored.
    Refresh,
    /// Run, and do not store the result.
    Bypass,
}

/// One call on its way through a tool's stack: plain data without HTTP, cheap to clone.
#[derive(Clone)]
pub struct Invocation {
    /// The key of the call's row, which the caller also gets.
    pub id: InvocationId,
    /// The tool's name, with aliases resolved.
    pub tool: ToolName,
    /// The caller of the tool.
    pub caller: Arc<Caller>,
    /// What the tool gets.
    pub input: CallInput,
    /// The run to which the call belongs.
    pub run: Run,
    /// By which the call is found in other systems.
    pub correlation: Correlation,
    /// How the call uses the cache.
    pub cache: CacheMode,
    /// The requested part of a long result.
    pub paging: RequestedPage,
    /// The calls of tools that led to this one.
    pub call_chain: CallChain,
    /// The idempotency key of the request.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Where the call stands, if its tool may need an approval.
    pub approval: Option<Arc<ApprovalStage>>,
    /// When the call started, and when it must have ended.
    pub timing: CallTiming,
    /// Number of the attempt, from 1. Only the retry policy changes it.
    pub attempt: u32,
    /// The events that end the call, or that others wait for. Shared, because a clone of a token
    /// costs more than a clone of this pointer.
    pub signals: Arc<CallSignals>,
    /// How the caller gets the answer.
    pub delivery: Delivery,
    /// The report of the layers about this call.
    pub report: Arc<CallReport>,
}

/// What the tool of a call gets.
#[derive(Clone)]
pub struct CallInput {
    /// The arguments that the tool gets: coerced, with defaults filled in. They are shared, because
    /// every retry needs them. No layer above `validate` keeps a reference; otherwise large
    /// arguments would be in memory twice.
    pub arguments: Arc<JsonObject>,
    /// The arguments as received, in the form in which they are recorded.
    pub recorded: RecordedArguments,
    /// Why there are no arguments: the model's text could not be parsed.
    pub unreadable: Option<Arc<UnreadableArguments>>,
    /// The caller's context, for tools that take one. It is never part of the arguments.
    pub context: Arc<JsonObject>,
}

/// The run to which a call belongs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Run {
    /// The run that the caller has named.
    #[serde(rename = "run_id")]
    pub id: Option<Arc<str>>,
    /// Whether the transport named the run, because the caller did not. Such a run groups and
    /// counts calls, but a call may repeat the one before it.
    #[serde(rename = "run_is_implied")]
    pub is_implied: bool,
}

/// The ids by which a call is found in other systems.
#[derive(Debug, Clone, Default)]
pub struct Correlation {
    /// The model's id for this call, returned with the answer.
    pub tool_use_id: Option<Arc<str>>,
    /// The client's id of the HTTP request, for the log only.
    pub request_id: Option<Arc<str>>,
    /// The trace of the request, for requests of the tool and for the log.
    pub trace: Option<Arc<TraceContext>>,
    /// The span of the call. The layer `record` sets it.
    pub span: CallTrace,
    /// The request of MCP that made the call. Set only if calls are traced.
    pub mcp: Option<Arc<McpRequest>>,
}

/// The requested part of a long result.
#[derive(Debug, Clone, Default)]
pub struct RequestedPage {
    /// The part; `None` for the first one.
    pub page: Option<Page>,
    /// The arguments by which a model requested that part.
    pub arguments: Option<Arc<PageArguments>>,
}

/// The times of a call.
#[derive(Debug, Clone)]
pub struct CallTiming {
    /// When the call was accepted, on the wall clock.
    pub started_at: Timestamp,
    /// The same moment on the monotonic clock.
    pub started: Instant,
    /// When the whole call must have ended. It only ever moves nearer.
    pub deadline: Option<Instant>,
}

impl CallTiming {
    /// The total time of the call, from its acceptance to its deadline.
    pub fn budget(&self) -> Duration {
        self.deadline
            .map_or(Duration::MAX, |deadline| deadline - self.started)
    }

    /// The failure of a call whose deadline is over. `started`: the tool may have run.
    pub fn deadline_exceeded(&self, started: bool) -> CallError {
        CallError::DeadlineExceeded {
            after: self.budget(),
            started,
        }
    }

    /// Moves the deadline nearer. A later deadline has no effect.
    pub fn shorten_deadline(&mut self, to: Instant) {
        self.deadline = Some(self.deadline.map_or(to, |now| now.min(to)));
    }

    /// Bounds the whole call to this time from its start. A time that the clock cannot represent is
    /// no bound.
    pub fn limit_to(&mut self, timeout: Duration) {
        if let Some(end) = self.started.checked_add(timeout) {
            self.shorten_deadline(end);
        }
    }
}

/// The events that end a call, or that other tasks wait for.
#[derive(Debug, Clone)]
pub struct CallSignals {
    /// Cancelled when the call is cancelled. The nested calls hold child tokens of it.
    pub call_cancelled: CancellationToken,
    /// Cancelled when the tool must stop: the call was cancelled, or its caller disconnected and
    /// `on_disconnect` is `cancel`. The nested calls are then dropped, and for each of them its own
    /// tool's `on_disconnect` applies.
    pub cancelled: CancellationToken,
    /// Cancelled when the caller has disconnected. A tool that has not started then never starts.
    pub disconnected: CancellationToken,
    /// Cancelled when the first attempt starts, for a task that waits for that.
    pub attempt_started: Option<CancellationToken>,
}

impl CallSignals {
    /// The signals of a call that ends when this token is cancelled.
    pub fn new(call_cancelled: CancellationToken) -> Self {
        Self {
            cancelled: call_cancelled.child_token(),
            call_cancelled,
            disconnected: CancellationToken::new(),
            attempt_started: None,
        }
    }

    /// Cancels the tokens of a call whose caller has disconnected. A call that has started goes on,
    /// unless `stops` is true.
    pub fn disconnect(&self, stops: bool) {
        self.disconnected.cancel();
        if stops {
            self.cancelled.cancel();
        }
    }
}

/// How the caller gets the answer.
#[derive(Debug, Clone, Default)]
pub struct Delivery {
    /// Whether the caller fetches the answer later. The row is then committed before the tool runs,
    /// whatever the tool's effect.
    pub responds_async: bool,
    /// Whether the caller follows the call until a person has decided, however long that takes.
    pub waits_for_decision: bool,
    /// Cancelled when the call begins to wait for a decision.
    pub waits: Option<CancellationToken>,
    /// Ends the wait for a decision: the request is then answered that its call waits.
    pub wait_ends: Option<CancellationToken>,
    /// The sink for the tool's progress. `None` if no client listens.
    pub progress: Option<ProgressSink>,
    /// The channel for questions of the tool. `None` if the caller cannot be asked.
    pub questions: Option<QuestionSink>,
}

impl Invocation {
    /// The answer for the call while it waits for a person.
    pub fn waiting_answer(&self) -> Answer {
        Answer {
            invocation: self.id,
            tool_use_id: self.correlation.tool_use_id.clone(),
            result: Arc::new(waiting_result(self.tool.as_str(), self.id)),
            meta: Meta::default(),
            replayed: false,
            waiting: true,
        }
    }

    /// A call of `tool` by `caller` that starts now, with defaults for everything else.
    pub fn new(
        tool: ToolName,
        arguments: JsonObject,
        caller: Arc<Caller>,
        started_at: Timestamp,
    ) -> Self {
        // The ledger stores milliseconds, so the time in memory has the same precision.
        let started_at =
            Timestamp::from_millisecond(started_at.as_millisecond()).unwrap_or(started_at);
        Self {
            id: InvocationId::new(),
            tool,
            caller,
            input: CallInput {
                arguments: Arc::new(arguments),
                recorded: RecordedArguments::Pending,
                unreadable: None,
                context: Arc::default(),
            },
            run: Run::default(),
            correlation: Correlation::default(),
            cache: CacheMode::default(),
            paging: RequestedPage::default(),
            call_chain: CallChain::default(),
            idempotency_key: None,
            approval: None,
            timing: CallTiming {
                started_at,
                started: Instant::now(),
                deadline: None,
            },
            attempt: 1,
            signals: Arc::new(CallSignals::new(CancellationToken::new())),
            delivery: Delivery::default(),
            report: Arc::default(),
        }
    }

    /// Whether a person has approved the call.
    pub fn is_approved(&self) -> bool {
        let stage = self.approval.as_deref();
        matches!(stage, Some(ApprovalStage::Approved(_)))
    }
}

/// Arguments and context may hold secrets, so they are not shown.
impl fmt::Debug for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invocation")
            .field("id", &self.id)
            .field("tool", &self.tool)
            .field("caller", &self.caller.name)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
