//! The data types of a tool call. The rest of the crate uses them; this module imports nothing from
//! it.

mod approval;
mod approval_stage;
mod call_chain;
mod call_settings;
mod caller;
pub mod canonical;
mod capture;
mod charge;
mod clock;
mod context;
mod context_fields;
mod definition;
mod discovery;
mod error;
mod idempotency;
mod invocation;
mod invocation_id;
pub mod json;
mod limit;
pub mod media_type;
mod meta;
mod nested_calls;
mod paging;
mod policy;
mod progress;
mod question;
mod queued_attempt;
mod redact;
mod report;
pub mod request_fields;
mod result;
mod selection;
mod stored_call;
mod stored_results;
mod trace;
pub mod units;

pub use approval::{ApprovalPolicy, CallCondition, CallFacts, DenyRule, approval_hash};
pub use approval_stage::{ApprovalStage, Approved, question_result, waiting_result};
pub use call_chain::CallChain;
pub use call_settings::{CallSettings, NameMatching, ParseAttempts};
pub use caller::{Caller, CallerCredentials};
pub use capture::{Capture, Digest, DigestKey, NOT_RECORDED, RecordedArguments, Truncated};
pub use charge::{Charge, Charged};
pub use clock::Clock;
pub use context::{Services, ToolContext, ToolSettings};
pub use context_fields::{ContextFields, is_field_name};
pub use definition::{Definition, EnvVar, Example, Kind, NameError, Origin, ToolName};
pub use discovery::{Discovery, ListBound};
pub use error::{
    CallError, Coercion, ERROR_RESULT_SUMMARY, ErrorKind, Failure, FailureSource,
    INTERRUPTED_SUMMARY, KindFacts, ToolError, UpstreamCause, UpstreamFailure, UpstreamReason,
    Violation, caller_attempt_message, error_text_beginning,
};
pub use idempotency::{Fingerprint, Idempotency, IdempotencyKey, KEY_RETENTION};
pub use invocation::{
    CacheMode, CallInput, CallSignals, CallTiming, Correlation, Delivery, Invocation,
    RequestedPage, Run,
};
pub use invocation_id::InvocationId;
pub use json::JsonObject;
pub use limit::{Limit, LimitOwner, LimitScope, Per};
pub use meta::{CacheStatus, LimitUsage, Meta, ModelUsage};
pub use nested_calls::{
    AvailableTool, DEFAULT_MAX_DEPTH, NestedAnswer, NestedCall, NestedCallError, ToolFilter,
    ToolInvoker,
};
pub use paging::{
    CutResult, Detail, Incomplete, MAX_TEXT_CHARS, Overflow, Page, PageArguments, Paging, RestHint,
    Unit, cut_result, describe_shape, may_be_cut,
};
pub use policy::{
    CachePolicy, CacheScope, CacheWhen, Concurrency, Effect, OnDisconnect, OutputCheckMode, Policy,
    RetryPolicy,
};
pub use progress::{Event, Listener, Progress, ProgressObserver, ProgressSink};
pub use question::{
    AskError, OpenQuestion, Question, QuestionAnswer, QuestionListener, QuestionSink,
};
pub(crate) use queued_attempt::QueuedAttempt;
pub(crate) use redact::SurroundedPart;
pub(crate) use redact::decode_lossy;
pub use redact::{CutEnds, Redact, shorten_text};
pub use report::{AttemptReport, CacheReport, CallReport, ChargeReport, ReplayedFrom};
pub use result::{Answer, ToolResult};
pub use selection::Selection;
pub use stored_call::StoredCall;
pub use stored_results::{OwnResult, OwnResultError, OwnResults, StoredResultError, StoredResults};
pub use toolcrib_dialect::{
    Content, EMPTY_ERROR_MESSAGE, RESULT_AS_ANSWER_KEY, Resource, ResourceLink,
    UnreadableArguments, words,
};
pub use trace::{
    CallSpan, CallTrace, ChildSpan, ChildWork, McpRequest, TOOL_ERROR_TYPE, TraceContext, derive_id,
};
