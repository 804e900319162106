//! What the transport knows about the sender of a request.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::call::{Caller, Failure, McpRequest, TraceContext};

/// The sender of a request, and the parts of the transport that its call needs.
#[derive(Clone)]
pub struct McpPeer {
    /// The authenticated caller; `anonymous` if there are no keys.
    pub caller: Arc<Caller>,
    /// The request's id, for the log.
    pub request_id: Option<Arc<str>>,
    /// The trace that the request belongs to, unless its message names one.
    pub trace: Option<Arc<TraceContext>>,
    /// The version of the protocol, if the transport knows it.
    pub protocol_version: Option<String>,
    /// The transport, as the conventions of OpenTelemetry name it: `tcp` or `pipe`.
    pub transport: &'static str,
    /// The run of the request, unless its message names one.
    pub run_id: Option<Arc<str>>,
    /// The id of the session. It is the run of calls that name none.
    pub session_id: Option<Arc<str>>,
    /// Tripped when the session has ended.
    pub session_ended: CancellationToken,
    /// Whether the end of a request's own stream means that its caller has disconnected.
    ///
    /// Without sessions, this is so: nothing else tells the service that the client is gone. The
    /// tool's `on_disconnect` then decides what happens to the call. In a session, and on standard
    /// input, the same signal from rmcp means a cancel notification, which always cancels the call.
    pub stream_end_disconnects: bool,
    /// Whether a task already notifies the session of changes to its tools.
    pub notifies: Arc<AtomicBool>,
    /// The failure whose REST status the transport must use, once the call was refused with a
    /// JSON-RPC error.
    pub failure: Arc<Mutex<Option<Box<Failure>>>>,
    /// The client has only the tools with this tag. `None`: all tools of the caller.
    pub tag: Option<Arc<str>>,
    /// Whether the client is one of MCP Toolbox. It reads one page only, and knows only parameters
    /// with one type.
    pub is_toolbox: bool,
    /// Values that must live as long as the request, such as its use of a session.
    pub keep_alive: Option<Arc<dyn Any + Send + Sync>>,
}

impl McpPeer {
    /// The operator, at the other end of a pipe.
    pub fn operator() -> Self {
        Self {
            caller: Arc::new(Caller::anonymous()),
            request_id: None,
            trace: None,
            protocol_version: None,
            transport: "pipe",
            run_id: None,
            session_id: None,
            session_ended: CancellationToken::new(),
            stream_end_disconnects: false,
            notifies: Arc::default(),
            failure: Arc::default(),
            tag: None,
            is_toolbox: false,
            keep_alive: None,
        }
    }

    /// Whether the sender has a tool with these tags, if its caller has it.
    pub fn has_tool(&self, tags: &[String]) -> bool {
        has_tag(tags, self.tag.as_deref())
    }

    /// The request of this sender as its span shows it.
    pub fn describe_request(&self, request_id: Option<String>) -> McpRequest {
        McpRequest {
            protocol_version: self.protocol_version.clone(),
            request_id,
            transport: self.transport,
        }
    }

    /// Takes the failure for which the call was refused, if there is one.
    pub fn take_failure(&self) -> Option<Box<Failure>> {
        self.failure.lock().take()
    }

    pub(super) fn record_failure(&self, failure: Box<Failure>) {
        *self.failure.lock() = Some(failure);
    }
}

/// Whether a tool with these tags is among those with `tag`, or among all.
pub(super) fn has_tag(tags: &[String], tag: Option<&str>) -> bool {
    tag.is_none_or(|tag| tags.iter().any(|other| other == tag))
}
