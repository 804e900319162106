//! The innermost service: calls the runner and cleans its output.
//!
//! It removes control characters and then secrets from each result and failure, before the ledger, the cache or the
//! caller get them. The order matters: an escape sequence could hide a secret. Then it checks the result against the
//! output schema of the tool.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;
use tower::Service;

use super::output::OutputCheck;
use super::validation::NotValidated;
use super::{CallFuture, Outcome, media};
use crate::call::{CallError, Clean, Invocation, Reporter, ToolContext, ToolError, ToolName, ToolResult, ToolSettings};
use crate::sanitize;
use crate::secrets::Redactor;
use crate::tools::Runner;

/// The innermost service of a stack.
#[derive(Clone)]
pub struct Run(Arc<Inner>);

struct Inner {
    runner: Arc<dyn Runner>,
    settings: Arc<ToolSettings>,
    output: Option<OutputCheck>,
    redactor: Arc<Redactor>,
    timeout: Duration,
}

impl Run {
    /// Makes the service that calls `runner` with these settings. Each attempt may take `timeout`.
    pub fn new(
        runner: Arc<dyn Runner>,
        settings: Arc<ToolSettings>,
        output: Option<OutputCheck>,
        redactor: Arc<Redactor>,
        timeout: Duration,
    ) -> Self {
        Self(Arc::new(Inner { runner, settings, output, redactor, timeout }))
    }
}

impl Service<Invocation> for Run {
    type Response = Arc<ToolResult>;
    type Error = CallError;
    type Future = CallFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, invocation: Invocation) -> CallFuture {
        let inner = self.0.clone();
        async move {
            let end = Instant::now() + inner.timeout;
            let end = invocation.deadline.map_or(end, |deadline| deadline.min(end));
            let reporter = Reporter::of(&invocation, || inner.clean());
            let context = ToolContext::new(&invocation, end, inner.settings.clone())
                .reporting(reporter)
                .redacting(inner.redactor.clone());
            let notes = invocation.notes.clone();
            let mut said = inner.runner.call(invocation.arguments, context).await;
            let mut ours = Vec::new();
            let unseen = match &mut said {
                Ok(result) => sanitize::result(result),
                Err(error) => sanitize::error(error),
            };
            ours.extend(unseen.into_iter().map(str::to_owned));
            let outcome = inner.judge(said, &invocation.tool, &mut ours);
            let outcome = match outcome {
                Ok(result) => inner.check_output(result, end).await,
                Err(error) => Err(error),
            };
            let warnings = &mut notes.lock().meta.warnings;
            for warning in warnings.iter_mut() {
                sanitize::string(warning);
                inner.redactor.string(warning);
            }
            warnings.extend(ours);
            outcome
        }
        .boxed()
    }
}

impl Inner {
    /// Removes secrets from the progress messages of the tool.
    fn clean(&self) -> Clean {
        let redactor = self.redactor.clone();
        Box::new(move |data| redactor.progress(data))
    }

    fn judge(&self, said: Result<ToolResult, ToolError>, tool: &ToolName, warnings: &mut Vec<String>) -> Outcome {
        let outcome = said.or_else(|error| said_or_failed(error, tool));
        match outcome {
            Ok(mut result) => {
                warnings.extend(media::check(&mut result, &self.redactor));
                self.redactor.result(&mut result);
                Ok(Arc::new(result))
            }
            Err(mut error) => {
                self.redactor.error(&mut error);
                Err(error)
            }
        }
    }

    /// Checks a result against the output schema. An error result needs no structured content.
    async fn check_output(&self, result: Arc<ToolResult>, end: Instant) -> Outcome {
        let Some(output) = self.output.as_ref().filter(|_| !result.is_error) else { return Ok(result) };
        if result.structured_content.is_none() {
            return Err(CallError::BadOutput("the tool promises structured content and gave none".into()));
        }
        match output.misfit(&result, end).await {
            Ok(None) => Ok(result),
            Ok(Some(first)) => Err(CallError::BadOutput(format!("the output breaks its schema: {first}"))),
            Err(NotValidated::Stopping) => Err(CallError::Draining),
            Err(NotValidated::Full | NotValidated::OutOfTime) => {
                Err(CallError::AttemptTimedOut { after: self.timeout })
            }
        }
    }
}

/// Converts an error of the runner. [`ToolError::Said`] becomes an error result (`is_error`); any other error fails the
/// call.
fn said_or_failed(error: ToolError, tool: &ToolName) -> Result<ToolResult, CallError> {
    Err(match error {
        ToolError::Said(text) => return Ok(ToolResult::error(text)),
        ToolError::InvalidArguments(violations) => CallError::InvalidArguments(violations),
        ToolError::InvalidContext(message) => CallError::InvalidContext(message),
        ToolError::Unavailable { message, started, retry_after } => {
            CallError::ToolUnavailable { message, started, retry_after }
        }
        ToolError::Upstream { message, retryable, down, untouched, retry_after } => {
            CallError::UpstreamFailed { message, retryable, down, untouched, retry_after }
        }
        ToolError::BadOutput(message) => CallError::BadOutput(message),
        ToolError::Changed => CallError::DefinitionChanged { tool: tool.to_string() },
    })
}
