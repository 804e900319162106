//! Who asks, as far as the transport knows it.

use std::any::Any;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::call::{Caller, Failure, TraceContext};

/// Who asks.
#[derive(Clone)]
pub struct Guest {
    /// Who that is.
    pub caller: Arc<Caller>,
    /// The request's id, for the log.
    pub request_id: Option<Arc<str>>,
    /// The trace that the request belongs to, unless its message names one.
    pub trace: Option<Arc<TraceContext>>,
    /// Tripped when whoever asks has left for good: the session is over.
    pub left: CancellationToken,
    /// The end of a request's own stream means that its caller has left, and nothing else does: so it is without
    /// sessions. Then a call's `on_disconnect` decides; in a session, and on standard input, it is cancelled when it is
    /// said to be.
    pub leaves_by_stream: bool,
    /// Whether it is told already when its tools have changed.
    pub told: Arc<AtomicBool>,
    /// Filled in when the call is answered with an error that has a status in REST.
    pub refused: Arc<Mutex<Option<Box<Failure>>>>,
    /// Given up when the request has been dealt with.
    pub held: Option<Arc<dyn Any + Send + Sync>>,
}

impl Guest {
    /// The operator at the other end of a pipe.
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

    /// What the call of this guest's was refused for.
    pub fn refused(&self) -> Option<Box<Failure>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn refuse(&self, failure: Box<Failure>) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }
}
