//! The span of a call: what the layers report for its trace.
//!
//! There are no live spans. A recorded call collects its attempts and its model requests here, and
//! `telemetry/` makes spans of them after the end of the call. The ids are known from the start,
//! because requests of the tool carry them.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::context::{Ids, TraceContext};

/// Most spans below one call. An agent with more turns loses the later ones.
const MAX_CHILDREN: usize = 256;

/// The `error.type` of a call whose tool returned an error result, as the conventions of MCP have
/// it.
pub const TOOL_ERROR_TYPE: &str = "tool_error";

/// What is known about the trace of a call.
#[derive(Debug, Clone, Default)]
pub enum CallTrace {
    /// The service makes no spans for the call. The caller's trace context is passed on unchanged.
    #[default]
    Unchanged,
    /// The call is not recorded. Its tool gets this trace id and the information that it is not.
    NotSampled(u128),
    /// The call is recorded.
    Recorded(Arc<CallSpan>),
}

/// The span of a recorded call.
#[derive(Debug)]
pub struct CallSpan {
    /// The trace that the span belongs to.
    pub trace_id: u128,
    /// The id of the span.
    pub span_id: u64,
    /// The span of the caller, which may be another service or the attempt that made this call.
    pub parent_id: Option<u64>,
    /// The request of MCP that made the call.
    pub mcp: Option<Arc<McpRequest>>,
    children: Mutex<Vec<ChildSpan>>,
}

/// The request of MCP that made a call.
#[derive(Debug, Default)]
pub struct McpRequest {
    /// The version of the protocol.
    pub protocol_version: Option<String>,
    /// The id of the JSON-RPC message.
    pub request_id: Option<String>,
    /// The transport: `tcp` or `pipe`.
    pub transport: &'static str,
}

/// A span below a call that has ended.
#[derive(Debug, Clone)]
pub struct ChildSpan {
    /// The id of the span.
    pub span_id: u64,
    /// The span above it.
    pub parent_id: u64,
    /// What the span shows.
    pub work: ChildWork,
    /// When the work started.
    pub started: Instant,
    /// When the work ended.
    pub ended: Instant,
    /// Why the work failed, from a closed set.
    pub error: Option<&'static str>,
}

/// The work of a span below a call.
#[derive(Debug, Clone)]
pub enum ChildWork {
    /// An attempt, with its number.
    Attempt(u32),
    /// A request of an agent to its model.
    ModelRequest {
        /// The name of the model.
        model: Arc<str>,
        /// The number of the turn, from 1.
        turn: u32,
        /// Tokens that the model read.
        input_tokens: u64,
        /// Tokens that the model wrote.
        output_tokens: u64,
    },
}

impl CallSpan {
    /// A span without children.
    pub fn new(
        trace_id: u128,
        span_id: u64,
        parent_id: Option<u64>,
        mcp: Option<Arc<McpRequest>>,
    ) -> Self {
        Self {
            trace_id,
            span_id,
            parent_id,
            mcp,
            children: Mutex::default(),
        }
    }

    /// The id of the span of an attempt.
    pub fn attempt_id(&self, attempt: u32) -> u64 {
        derive_id(self.span_id, u64::from(attempt))
    }

    /// The id of the span of a request to a model.
    pub(crate) fn model_request_id(&self, attempt: u32, turn: u32) -> u64 {
        derive_id(self.attempt_id(attempt), u64::from(turn))
    }

    /// The context that a request to a model carries, below the context of the attempt.
    pub(crate) fn model_request_trace(
        &self,
        attempt: u32,
        turn: u32,
        above: Option<&TraceContext>,
    ) -> Arc<TraceContext> {
        let ids = Ids {
            span_id: self.model_request_id(attempt, turn),
            ..self.attempt_context(attempt, above)
        };
        Arc::new(TraceContext::from_ids(&ids, above))
    }

    /// Adds the span of an attempt that has ended now.
    pub fn add_attempt(&self, attempt: u32, started: Instant, error: Option<&'static str>) {
        self.add_child(ChildSpan {
            span_id: self.attempt_id(attempt),
            parent_id: self.span_id,
            work: ChildWork::Attempt(attempt),
            started,
            ended: Instant::now(),
            error,
        });
    }

    /// Adds a span below this one.
    pub fn add_child(&self, child: ChildSpan) {
        let mut children = self.children.lock();
        if children.len() < MAX_CHILDREN {
            children.push(child);
        }
    }

    /// Takes the spans below this one.
    pub fn take_children(&self) -> Vec<ChildSpan> {
        std::mem::take(&mut *self.children.lock())
    }

    /// The context that the requests of an attempt carry.
    pub(crate) fn attempt_context(&self, attempt: u32, caller: Option<&TraceContext>) -> Ids {
        Ids {
            trace_id: self.trace_id,
            span_id: self.attempt_id(attempt),
            is_sampled: true,
            has_random_trace_id: caller.is_none_or(TraceContext::has_random_trace_id),
        }
    }
}

impl CallTrace {
    /// The trace context for the requests of an attempt. `caller` is the context that the caller
    /// sent.
    pub fn outgoing(
        &self,
        attempt: u32,
        caller: Option<&Arc<TraceContext>>,
    ) -> Option<Arc<TraceContext>> {
        let ids = match self {
            Self::Unchanged => return caller.cloned(),
            Self::NotSampled(trace_id) => Ids {
                trace_id: *trace_id,
                span_id: derive_id(*trace_id as u64, u64::from(attempt)),
                is_sampled: false,
                has_random_trace_id: caller.is_none_or(|trace| trace.has_random_trace_id()),
            },
            Self::Recorded(span) => span.attempt_context(attempt, caller.map(|trace| &**trace)),
        };
        Some(Arc::new(TraceContext::from_ids(&ids, caller.map(|c| &**c))))
    }

    /// The recorded span.
    pub fn recorded(&self) -> Option<&Arc<CallSpan>> {
        match self {
            Self::Recorded(span) => Some(span),
            Self::Unchanged | Self::NotSampled(_) => None,
        }
    }
}

/// An id below another one (SplitMix64). The same inputs give the same id, so nothing has to be
/// kept while an attempt runs.
pub fn derive_id(above: u64, number: u64) -> u64 {
    let mut id = above.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    id = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    id = (id ^ (id >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    // An id of zero is invalid.
    (id ^ (id >> 31)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outgoing_context_names_the_attempt() {
        let caller = TraceContext::from_headers(
            [&b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03"[..]],
            [&b"a=1"[..]],
        )
        .map(Arc::new);
        let parent = caller.as_ref().unwrap();
        assert_eq!(
            CallTrace::Unchanged.outgoing(1, caller.as_ref()),
            caller,
            "without telemetry, the context is passed on"
        );
        let span = Arc::new(CallSpan::new(parent.ids().0, 7, Some(parent.ids().1), None));
        let trace = CallTrace::Recorded(span.clone());
        let first = trace.outgoing(1, caller.as_ref()).unwrap();
        let second = trace.outgoing(2, caller.as_ref()).unwrap();
        assert_ne!(first, second, "each attempt is a span");
        assert_eq!(first.ids(), (parent.ids().0, span.attempt_id(1)));
        assert!(first.is_sampled() && first.traceparent().ends_with("-03"));
        assert_eq!(first.tracestate(), Some("a=1"));
        let quiet = CallTrace::NotSampled(parent.ids().0)
            .outgoing(1, None)
            .unwrap();
        assert!(!quiet.is_sampled());
        assert_eq!(quiet.trace_id(), parent.trace_id());
    }

    #[test]
    fn children_are_bounded() {
        let span = CallSpan::new(1, 2, None, None);
        for attempt in 0..1000 {
            span.add_attempt(attempt, Instant::now(), None);
        }
        assert_eq!(span.take_children().len(), MAX_CHILDREN);
        assert!(span.take_children().is_empty());
    }
}
