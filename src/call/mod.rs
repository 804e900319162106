//! The data types of a tool call. The rest of the crate uses them; this module imports nothing from
//! it.

mod approval;
mod approval_stage;
mod call_chain;
mod call_settings;
mod caller;
mod caller_credentials;
pub mod canonical;
mod capture;
mod charge;
mod clock;
mod context;
mod context_fields;
mod cut;
mod definition;
mod error;
mod error_kind;
mod error_messages;
mod error_record;
mod failure_summary;
mod idempotency;
mod incomplete;
mod invocation;
mod invocation_id;
pub mod json;
mod limit;
pub mod media_type;
mod meta;
mod nested_calls;
mod page;
mod policy;
mod progress;
mod question;
mod queued_attempt;
mod recorded_outcome;
mod redact;
mod report;
pub mod request_fields;
mod result;
mod source_overflow;
mod span;
mod stored_call;
mod stored_results;
mod tool_error;
mod trace;
mod truncated;
pub mod units;
mod upstream_cause;
mod violation;

pub use approval::{ApprovalPolicy, CallCondition, CallFacts, DenyRule, approval_hash};
pub use approval_stage::{ApprovalStage, Approved, question_result, waiting_result};
pub use call_chain::CallChain;
pub use call_settings::{CallSettings, NameMatching, ParseAttempts};
pub use caller::Caller;
pub use caller_credentials::CallerCredentials;
pub use capture::{Capture, Digest, DigestKey, NOT_RECORDED, RecordedArguments};
pub use charge::{Charge, Charged};
pub use clock::Clock;
pub use context::{Services, ToolContext, ToolSettings};
pub use context_fields::{ContextFields, is_field_name};
pub use cut::{CutResult, MAX_TEXT_CHARS, cut_result, may_be_cut};
pub use definition::{Definition, EnvVar, Example, Kind, NameError, Origin, ToolName};
pub use error::{CallError, Failure};
pub use error_kind::{ErrorKind, FailureSource, KindFacts};
pub use error_record::caller_attempt_message;
pub use failure_summary::{ERROR_RESULT_SUMMARY, INTERRUPTED_SUMMARY, error_text_beginning};
pub use idempotency::{Fingerprint, Idempotency, IdempotencyKey, KEY_RETENTION};
pub use incomplete::Incomplete;
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
pub use page::{Detail, Overflow, Page, PageArguments, Paging, RestHint, Unit};
pub use policy::{
    CachePolicy, CacheScope, CacheWhen, Concurrency, Effect, OnDisconnect, OutputCheckMode, Policy,
    RetryPolicy,
};
pub use progress::{Event, Listener, Progress, ProgressObserver, ProgressSink, RedactFn, Reporter};
pub use question::{
    AskError, OpenQuestion, Question, QuestionAnswer, QuestionListener, QuestionSink,
};
pub(crate) use queued_attempt::QueuedAttempt;
pub(crate) use redact::SurroundedPart;
pub(crate) use redact::decode_lossy;
pub use redact::{CutEnds, Redact, shorten_text};
pub use report::{AttemptReport, CacheReport, CallReport, ChargeReport, ReplayedFrom};
pub use result::{Answer, ToolResult};
pub use span::{CallSpan, CallTrace, ChildSpan, ChildWork, McpRequest, TOOL_ERROR_TYPE, derive_id};
pub use stored_call::StoredCall;
pub use stored_results::{OwnResult, OwnResultError, OwnResults, StoredResultError, StoredResults};
pub use tool_error::ToolError;
pub use toolcrib_dialect::{
    Content, EMPTY_ERROR_MESSAGE, RESULT_AS_ANSWER_KEY, Resource, ResourceLink, UnreadableArguments,
};
pub use trace::TraceContext;
pub use truncated::Truncated;
pub use upstream_cause::{UpstreamCause, UpstreamReason};
pub use violation::{Coercion, Violation};
