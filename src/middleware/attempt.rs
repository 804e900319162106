//! One try: its time limit, its panic, its row if it failed.
//!
//! Inside retry, so that each try has its own clock. A panic in a tool is an answer that says no: whatever a tool
//! does, the service goes on.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};
use tower::{Layer, Service};

use super::{CallFuture, Outcome};
use crate::call::{CallError, Invocation, ToolResult};
use crate::ledger::{AttemptRow, Ledger};
use crate::secrets::Redactor;

/// See the module.
#[derive(Clone)]
pub struct AttemptLayer {
    ledger: Arc<dyn Ledger>,
    redactor: Arc<Redactor>,
    timeout: Duration,
}

impl AttemptLayer {
    /// Gives each try this long.
    pub fn new(ledger: &Arc<dyn Ledger>, redactor: &Arc<Redactor>, timeout: Duration) -> Self {
        Self { ledger: ledger.clone(), redactor: redactor.clone(), timeout }
    }
}

impl<S> Layer<S> for AttemptLayer {
    type Service = Attempt<S>;

    fn layer(&self, inner: S) -> Attempt<S> {
        Attempt { inner, settings: self.clone() }
    }
}

/// See the module.
#[derive(Clone)]
pub struct Attempt<S> {
    inner: S,
    settings: AttemptLayer,
}

impl<S> Service<Invocation> for Attempt<S>
where
    S: Service<Invocation, Response = Arc<ToolResult>, Error = CallError> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Arc<ToolResult>;
    type Error = CallError;
    type Future = CallFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, invocation: Invocation) -> CallFuture {
        let ready = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, ready);
        let settings = self.settings.clone();
        async move {
            let began = Instant::now();
            let (id, attempt) = (invocation.id, invocation.attempt);
            invocation.notes.lock().meta.attempts = attempt;
            let call = AssertUnwindSafe(async { inner.call(invocation).await }).catch_unwind();
            let outcome: Outcome = match timeout(settings.timeout, call).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(panic)) => {
                    let said = settings.redactor.text(panic_message(&*panic));
                    tracing::error!(%id, panic = &*said, "a tool panicked");
                    Ok(Arc::new(ToolResult::error(format!("The tool failed unexpectedly: {said}"))))
                }
                Err(_) => Err(CallError::AttemptTimedOut { after: settings.timeout }),
            };
            if let Err(error) = &outcome {
                let row = AttemptRow {
                    invocation: id,
                    attempt,
                    kind: error.kind(),
                    message: error.to_string(),
                    duration_us: i64::try_from(began.elapsed().as_micros()).unwrap_or(i64::MAX),
                };
                if let Err(error) = settings.ledger.attempt(row).await {
                    tracing::warn!(%id, %error, "a failed try could not be written");
                }
            }
            outcome
        }
        .boxed()
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it panicked")
}
