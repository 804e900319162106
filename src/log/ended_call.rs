//! The log entry of a call that has ended.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tracing::Level;

use crate::call::{
    CacheStatus, CallSpan, Caller, ErrorKind, Invocation, InvocationId, ToolName, TraceContext,
};
use crate::ledger::{Row, State};

/// The target of the lines, for filters.
pub const TARGET: &str = "toolcrib::call";

/// The end of a call: only handles and numbers. So it is cheap to make and keeps no result in
/// memory.
pub(crate) struct EndedCall {
    pub(crate) at: Timestamp,
    pub(crate) id: InvocationId,
    pub(crate) request_id: Option<Arc<str>>,
    pub(crate) trace: Option<Arc<TraceContext>>,
    /// The span of the call, if it is recorded.
    pub(crate) span: Option<Arc<CallSpan>>,
    pub(crate) tool: ToolName,
    pub(crate) caller: Arc<Caller>,
    pub(crate) run_id: Option<Arc<str>>,
    pub(crate) tool_use_id: Option<Arc<str>>,
    pub(crate) state: State,
    pub(crate) kind: Option<ErrorKind>,
    /// One sentence of the service on why the call failed.
    pub(crate) detail: Option<Arc<str>>,
    pub(crate) cache: CacheStatus,
    pub(crate) attempts: u32,
    pub(crate) duration_us: i64,
    /// The answer of a call that ended earlier was given again.
    pub(crate) replayed: bool,
}

impl EndedCall {
    pub(crate) fn new(invocation: &Invocation, row: &Row) -> Self {
        let duration_us = row.duration_us.unwrap_or_default();
        Self {
            at: row
                .started_at
                .checked_add(SignedDuration::from_micros(duration_us))
                .unwrap_or(row.started_at),
            id: row.id,
            request_id: invocation.correlation.request_id.clone(),
            trace: invocation.correlation.trace.clone(),
            span: invocation.correlation.span.recorded().cloned(),
            tool: invocation.tool.clone(),
            caller: invocation.caller.clone(),
            run_id: invocation.run.id.clone(),
            tool_use_id: invocation.correlation.tool_use_id.clone(),
            state: row.state,
            kind: row.kind,
            detail: row.logged_detail(),
            cache: row.cache,
            attempts: row.attempts,
            duration_us,
            replayed: false,
        }
    }

    pub(super) fn level(&self) -> Level {
        if self.replayed {
            Level::INFO
        } else {
            level_for(self.kind)
        }
    }

    /// The trace of the call: that of its span, or the one that the caller sent.
    pub(super) fn trace_id(&self) -> Option<Cow<'_, str>> {
        match &self.span {
            Some(span) => Some(format!("{:032x}", span.trace_id).into()),
            None => self.trace.as_deref().map(|trace| trace.trace_id().into()),
        }
    }

    pub(super) fn duration_ms(&self) -> f64 {
        self.duration_us as f64 / 1e3
    }

    /// Emits the entry as a tracing event.
    pub(super) fn emit(&self) {
        // The level is part of a callsite, so each level needs its own.
        macro_rules! event {
            ($level:expr) => {
                tracing::event!(
                    target: TARGET,
                    $level,
                    invocation_id = %self.id,
                    request_id = self.request_id.as_deref(),
                    trace_id = self.trace_id().as_deref(),
                    tool = self.tool.as_str(),
                    caller = &*self.caller.name,
                    run_id = self.run_id.as_deref(),
                    tool_use_id = self.tool_use_id.as_deref(),
                    state = self.state.as_str(),
                    kind = self.kind.map(ErrorKind::as_str),
                    detail = self.detail.as_deref(),
                    cache = self.cache.as_str(),
                    attempts = self.attempts,
                    duration_ms = self.duration_ms(),
                    replayed = self.replayed.then_some(true),
                    "call"
                )
            };
        }
        match self.level() {
            Level::ERROR => event!(Level::ERROR),
            Level::WARN => event!(Level::WARN),
            _ => event!(Level::INFO),
        }
    }
}

/// The importance of a call's end for the operator. An error result is information.
pub(super) fn level_for(kind: Option<ErrorKind>) -> Level {
    kind.map_or(Level::INFO, |kind| kind.facts().level)
}
