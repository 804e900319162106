//! What the transport knows about the sender of a request.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::call::{Caller, Failure, McpRequest, Selection, TraceContext};
use crate::catalog::registry::Registry;
use crate::catalog::{Catalog, Entry};
use crate::formats::Format;

/// The transport of standard input and output.
const PIPE: &str = "pipe";

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
    /// The tools of the caller that the client has.
    pub selection: Selection,
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
            transport: PIPE,
            run_id: None,
            session_id: None,
            session_ended: CancellationToken::new(),
            stream_end_disconnects: false,
            notifies: Arc::default(),
            failure: Arc::default(),
            selection: Selection::default(),
            is_toolbox: false,
            keep_alive: None,
        }
    }

    /// What decides about its list of tools.
    pub(super) fn list_owner(&self) -> ListOwner {
        let run = self.run_id.as_ref().or(self.session_id.as_ref()).cloned();
        ListOwner {
            caller: self.caller.clone(),
            selection: self.selection.clone(),
            // The one client of a pipe has the unnamed run for itself.
            run: (run.is_some() || self.transport == PIPE).then_some(run),
        }
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

/// What decides about the list of tools of a sender.
pub(super) struct ListOwner {
    caller: Arc<Caller>,
    selection: Selection,
    /// The run whose found tools stay in the list; `None`: the sender has no run.
    run: Option<Option<Arc<str>>>,
}

impl ListOwner {
    /// Its tools that can be called, by name.
    pub(super) fn list_tools(&self, registry: &Registry, catalog: &Catalog) -> Vec<Arc<Entry>> {
        let found = self.run.as_ref().map(|run| {
            let runs = &registry.shared().runs;
            runs.found_tools(&self.caller.name, run.as_deref())
        });
        let mut entries = catalog.selected_tools(&self.caller, &self.selection);
        entries.retain(|entry| entry.is_available());
        catalog.shown_tools(
            Format::Mcp,
            &self.caller,
            entries,
            &found.unwrap_or_default(),
        )
    }
}
