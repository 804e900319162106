//! The nouns of a tool call. Everything else in the crate speaks in these; this module imports nothing from it.

mod calls;
pub mod canonical;
mod capture;
mod charge;
mod clock;
mod context;
mod cut;
mod definition;
mod error;
mod error_words;
pub mod fields;
mod idempotency;
mod invocation;
pub mod json;
mod kind;
mod notes;
mod page;
mod policy;
mod progress;
mod redact;
mod result;
mod stored;
mod subcalls;
mod tool_error;
mod trace;
mod truncated;
pub mod units;
mod unreadable;

pub use calls::{CallSettings, NameMatching};
pub use capture::{Capture, Digest, DigestKey, Received, WITHHELD};
pub use charge::{Charge, Charged};
pub use clock::Clock;
pub use context::{Services, ToolContext, ToolSettings};
pub use cut::{Cut, LONGEST_TEXT, cut, may_be_cut};
pub use definition::{Definition, EnvVar, Kind, NameError, Origin, ToolName};
pub use error::{CallError, Failure, Violation};
pub use idempotency::{Fingerprint, Idempotency, IdempotencyKey, KEY_KEPT};
pub use invocation::{CacheMode, Caller, Invocation, InvocationId};
pub use json::JsonObject;
pub use kind::{ErrorKind, Source};
pub use notes::{CacheStatus, Coercion, Earlier, LimitUsage, Meta, ModelUsage, Notes};
pub use page::{Detail, Overflow, Page, PageArguments, Paging, Rest, Unit};
pub use policy::{
    CachePolicy, CacheScope, CacheWhen, Concurrency, Effect, Limit, LimitScope, OnDisconnect, Per, Policy, RetryPolicy,
};
pub use progress::{Clean, Event, Listener, Progress, ProgressSink, Reporter};
pub(crate) use redact::decode;
pub use redact::{Redact, Torn, shorten};
pub use result::{Answer, Content, RESULT_AS_ANSWER, Resource, ToolResult};
pub use stored::{NotRead, NotStored, OwnResult, OwnResults, StoredResults};
pub use subcalls::{LEVELS, Lineage, NoAnswer, Offered, SubAnswer, SubCall, SubCalls, Wanted};
pub use tool_error::ToolError;
pub use trace::TraceContext;
pub use truncated::Truncated;
pub use unreadable::Unreadable;
