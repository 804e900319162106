//! What the transport knows about the sender of a request.

use std::any::Any;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::call::{Caller, Failure, TraceContext};

/// The sender of a request, and the parts of the transport that its call needs.
#[derive(Clone)]
pub struct McpPeer {
    /// The authenticated caller; `anonymous` if there are no keys.
    pub caller: Arc<Caller>,
    /// The request's id, for the log.
    pub request_id: Option<Arc<str>>,
    /// The trace that the request belongs to, unless its message names one.
    pub trace: Option<Arc<TraceContext>>,
    /// Tripped when the session has ended.
    pub left: CancellationToken,
    /// Whether the end of a request's own stream means that its caller has disconnected.
    ///
    /// Without sessions, this is so: nothing else tells the service that the client is gone. The tool's `on_disconnect`
    /// then decides what happens to the call. In a session, and on standard input, the same signal from rmcp means a
    /// cancel notification, which always cancels the call.
    pub leaves_by_stream: bool,
    /// Whether a task already notifies the session of changes to its tools.
    pub told: Arc<AtomicBool>,
    /// The failure whose REST status the transport must use, once the call was refused with a JSON-RPC error.
    pub refused: Arc<Mutex<Option<Box<Failure>>>>,
    /// Values that must live as long as the request, such as its use of a session.
    pub held: Option<Arc<dyn Any + Send + Sync>>,
}

impl McpPeer {
    /// The operator, at the other end of a pipe.
    pub fn operator() -> Self {
        Self {
            caller: Arc::new(Caller::anonymous()),
            request_id: None,
            trace: None,
            left: CancellationToken::new(),
            leaves_by_stream: false,
            told: Arc::default(),
            refused: Arc::default(),
            held: None,
        }
    }

    /// Takes the failure for which the call was refused, if there is one.
    pub fn refused(&self) -> Option<Box<Failure>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn refuse(&self, failure: Box<Failure>) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }
}
