//! Runs one attempt: applies its time limit, catches its panic, and writes its row if it failed.
//!
//! This layer is below `retry`, so each attempt has its own time limit. A panic of a tool becomes an error result
//! (`is_error`), so no tool can stop the service. If a layer above drops an attempt, `record` writes the attempt's row.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};

use super::Outcome;
use super::around::{Around, AroundLayer, Inner};
use crate::call::{CallError, Invocation, ToolResult, WITHHELD};
use crate::ledger::{AttemptRow, Ledger};
use crate::sanitize;
use crate::secrets::Redactor;

/// The layer that bounds each attempt.
pub struct Attempt {
    ledger: Arc<dyn Ledger>,
    redactor: Arc<Redactor>,
    timeout: Duration,
    withholds: bool,
}

impl Attempt {
    /// Makes the layer; each attempt may take `timeout`. With `withholds`, messages that may quote the call go neither
    /// into the ledger nor into the log.
    pub fn layer(
        ledger: &Arc<dyn Ledger>,
        redactor: &Arc<Redactor>,
        timeout: Duration,
        withholds: bool,
    ) -> AroundLayer<Self> {
        AroundLayer::new(Self { ledger: ledger.clone(), redactor: redactor.clone(), timeout, withholds })
    }
}

impl Around for Attempt {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Invocation) -> Outcome {
        let began = Instant::now();
        let (id, attempt) = (invocation.id, invocation.attempt);
        if let Some(begun) = &invocation.begun {
            begun.cancel();
        }
        let notes = invocation.notes.clone();
        {
            let mut notes = notes.lock();
            (notes.meta.attempts, notes.trying) = (attempt, Some(began));
            (notes.waits, notes.fell_with_another) = (false, false);
        }
        let call = AssertUnwindSafe(async move { inner.call(invocation).await }).catch_unwind();
        let outcome: Outcome = match timeout(self.timeout, call).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(panic)) => {
                let said = sanitize::text(panic_message(&*panic));
                let said = self.redactor.text(&said);
                // The message of the panic may contain any data of the call. It goes into the result and so into the
                // ledger, but not into the log.
                tracing::error!(%id, "a tool panicked");
                Ok(Arc::new(ToolResult::error(format!("The tool failed unexpectedly: {said}"))))
            }
            Err(_) => Err(CallError::AttemptTimedOut { after: self.timeout }),
        };
        notes.lock().trying = None;
        if let Err(error) = &outcome {
            let row = AttemptRow {
                invocation: id,
                attempt,
                kind: error.kind(),
                message: if self.withholds && error.kind().quotes() { WITHHELD.into() } else { error.to_string() },
                duration_us: i64::try_from(began.elapsed().as_micros()).unwrap_or(i64::MAX),
            };
            if let Err(error) = self.ledger.attempt(row).await {
                tracing::warn!(%id, %error, "a failed try could not be written");
            }
        }
        outcome
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it panicked")
}
