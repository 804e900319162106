//! What remains of a call for its span: handles and numbers, and no result unless it is captured.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::queue::Record;
use super::signal::Signal;
use crate::call::{CallSpan, InvocationId, Kind, ModelUsage, ToolName, TraceContext};
use crate::log;

/// A span that has ended, before its message is made.
pub(super) struct EndedSpan {
    pub(super) span: Arc<CallSpan>,
    /// The context that the caller sent.
    pub(super) caller_trace: Option<Arc<TraceContext>>,
    pub(super) times: Times,
    pub(super) subject: Subject,
}

impl Record for EndedSpan {
    const SIGNAL: Signal = Signal::Traces;
}

/// What a span is about.
pub(super) enum Subject {
    Call(Box<EndedCall>),
    Mcp {
        method: String,
        error: Option<String>,
    },
}

/// A call that has ended.
pub(super) struct EndedCall {
    pub(super) ended: log::EndedCall,
    pub(super) parent: Option<InvocationId>,
    pub(super) kind: Kind,
    pub(super) agent: Option<ToolName>,
    pub(super) model: Option<ModelUsage>,
    pub(super) content: Option<Content>,
}

/// What a call was given and what it returned, as JSON, cut to a few kilobytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The arguments as the ledger has them: without secrets and without `writeOnly` values.
    pub(super) arguments: Option<String>,
    /// The result. A failure has none.
    pub(super) result: Option<String>,
}

/// When the work started and ended, and the wall-clock time of the end.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) started: Instant,
    pub(super) ended: Instant,
    ended_at: SystemTime,
}

impl Times {
    /// Work that ends now.
    pub(super) fn until_now(started: Instant) -> Self {
        Self {
            started,
            ended: Instant::now(),
            ended_at: SystemTime::now(),
        }
    }

    /// A moment of the work as nanoseconds of Unix time.
    pub(super) fn unix_nanos(&self, moment: Instant) -> u64 {
        let before_end = self.ended.saturating_duration_since(moment);
        unix_nanos(self.ended_at.checked_sub(before_end).unwrap_or(UNIX_EPOCH))
    }
}

/// Nanoseconds of Unix time.
pub(super) fn unix_nanos(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
