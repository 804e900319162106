//! Runs one attempt: applies its time limit, catches its panic, and writes its row if it failed.
//!
//! This layer is below `retry`, so each attempt has its own time limit. A panic of a tool becomes
//! an error result (`is_error`), so no tool can stop the service. If a layer above drops an
//! attempt, `record` writes the attempt's row.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};

use super::Outcome;
use super::interceptor::{Inner, Interceptor};
use crate::call::{CallError, Invocation, NOT_RECORDED, TOOL_ERROR_TYPE, ToolResult};
use crate::ledger::{AttemptRow, Ledger};
use crate::secrets::Redactor;
use crate::text::sanitize;

/// The layer that bounds each attempt.
pub struct Attempt {
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) redactor: Arc<Redactor>,
    /// Each attempt may take so long.
    pub(super) timeout: Duration,
    /// Whether messages that may quote the call go neither into the ledger nor into the log.
    pub(super) records_digests: bool,
}

impl Interceptor for Attempt {
    async fn call<S: Inner>(self: Arc<Self>, mut inner: S, invocation: Box<Invocation>) -> Outcome {
        // A call that another replica has settled must not run any more: its key may be free again.
        let is_reserved = invocation.report.charge.lock().reserved;
        if is_reserved
            && let Err(reason) = self
                .ledger
                .check_lease(invocation.timing.started.into_std())
        {
            return Err(CallError::LedgerUnavailable {
                reason,
                started: invocation.attempt > 1,
                has_row: true,
            });
        }
        let started = Instant::now();
        let (id, attempt) = (invocation.id, invocation.attempt);
        if let Some(attempt_started) = &invocation.signals.attempt_started {
            attempt_started.cancel();
        }
        let report = invocation.report.clone();
        let span = invocation.correlation.span.recorded().cloned();
        report.attempt.lock().start(attempt, started);
        let call = AssertUnwindSafe(async move { inner.call(invocation).await }).catch_unwind();
        let mut outcome: Outcome = match timeout(self.timeout, call).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(panic)) => {
                let message = sanitize::clean_text(panic_message(&*panic));
                let message = self.redactor.redact_text(&message);
                // The message of the panic may contain any data of the call. It goes into the
                // result and so into the ledger, but not into the log.
                tracing::error!(%id, "a tool panicked");
                Ok(Arc::new(ToolResult::error(format!(
                    "The tool failed unexpectedly: {message}"
                ))))
            }
            Err(_) => Err(CallError::AttemptTimedOut {
                after: self.timeout,
            }),
        };
        let is_refused = outcome.as_ref().is_err_and(CallError::is_refusal);
        let has_run = report.attempt.lock().end(!is_refused);
        if let Err(CallError::ToolUnavailable { started, .. }) = &mut outcome {
            // The call has started, although this attempt has not.
            *started |= has_run;
        }
        if let Some(span) = span {
            span.add_attempt(attempt, started, error_type(&outcome));
        }
        if let Err(error) = &outcome {
            let row = AttemptRow {
                invocation: id,
                attempt,
                kind: error.kind(),
                message: if self.records_digests && error.kind().facts().may_quote_call {
                    NOT_RECORDED.into()
                } else {
                    error.attempt_message()
                },
                duration_us: i64::try_from(started.elapsed().as_micros()).unwrap_or(i64::MAX),
            };
            if let Err(error) = self.ledger.record_attempt(row).await {
                tracing::warn!(%id, %error, "a failed attempt could not be written");
            }
        }
        outcome
    }
}

/// The `error.type` of an attempt: the kind of its failure, or that its tool returned an error.
fn error_type(outcome: &Outcome) -> Option<&'static str> {
    match outcome {
        Ok(result) => result.is_error.then_some(TOOL_ERROR_TYPE),
        Err(error) => Some(error.kind().as_str()),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("it panicked")
}
