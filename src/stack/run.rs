//! The innermost service: calls the runner and cleans its output.
//!
//! It removes control characters and then secrets from each result and failure, before the ledger,
//! the cache or the caller get them. The order matters: an escape sequence could hide a secret.
//! Then it checks the result against the output schema of the tool.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;
use tower::Service;

use super::output_check::OutputCheck;
use super::{CallFuture, Outcome, media};
use crate::call::{
    CallError, Invocation, ToolContext, ToolError, ToolName, ToolResult, ToolSettings,
};
use crate::kinds::Runner;
use crate::secrets::Redactor;
use crate::text::sanitize;

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
        Self(Arc::new(Inner {
            runner,
            settings,
            output,
            redactor,
            timeout,
        }))
    }
}

impl Service<Box<Invocation>> for Run {
    type Response = Arc<ToolResult>;
    type Error = CallError;
    type Future = CallFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, invocation: Box<Invocation>) -> CallFuture {
        let inner = self.0.clone();
        async move {
            let end = Instant::now() + inner.timeout;
            let end = invocation
                .timing
                .deadline
                .map_or(end, |deadline| deadline.min(end));
            let context = ToolContext::new(&invocation, end, inner.settings.clone())
                .with_redactor(inner.redactor.clone());
            let report = invocation.report.clone();
            let mut output = inner.runner.call(invocation.input.arguments, context).await;
            let mut own_warnings = Vec::new();
            let invisible_warnings = match &mut output {
                Ok(result) => sanitize::clean_result(result),
                Err(error) => sanitize::clean_error(error),
            };
            own_warnings.extend(invisible_warnings.into_iter().map(str::to_owned));
            let outcome = inner.redact_outcome(output, &invocation.tool, &mut own_warnings);
            // An error result needs no structured content.
            let outcome = match (outcome, &inner.output) {
                (Ok(result), Some(output)) if !result.is_error => output
                    .check(&result, end, inner.timeout, &mut own_warnings)
                    .await
                    .map(|()| result),
                (outcome, _) => outcome,
            };
            let warnings = &mut report.tool.lock().warnings;
            for warning in warnings.iter_mut() {
                sanitize::clean_in_place(warning);
                inner.redactor.redact_string(warning);
            }
            warnings.extend(own_warnings);
            outcome
        }
        .boxed()
    }
}

impl Inner {
    fn redact_outcome(
        &self,
        output: Result<ToolResult, ToolError>,
        tool: &ToolName,
        warnings: &mut Vec<String>,
    ) -> Outcome {
        let outcome = output.or_else(|error| convert_error(error, tool));
        match outcome {
            Ok(mut result) => {
                warnings.extend(media::check_media(&mut result, &self.redactor));
                self.redactor.redact_result(&mut result);
                Ok(Arc::new(result))
            }
            Err(mut error) => {
                // A host that the arguments select is an argument.
                if let CallError::UpstreamFailed {
                    cause: Some(cause), ..
                } = &mut error
                    && !self.runner.traits().has_one_target
                {
                    cause.host = None;
                }
                self.redactor.redact_error(&mut error);
                Err(error)
            }
        }
    }
}

/// Converts an error of the runner. [`ToolError::ErrorResult`] becomes an error result
/// (`is_error`); any other error fails the call.
fn convert_error(error: ToolError, tool: &ToolName) -> Result<ToolResult, CallError> {
    Err(match error {
        ToolError::ErrorResult(text) => return Ok(ToolResult::error(text)),
        ToolError::InvalidArguments(violations) => CallError::InvalidArguments(violations),
        ToolError::InvalidContext(message) => CallError::InvalidContext(message),
        ToolError::Unavailable {
            message,
            started,
            retry_after,
        } => CallError::ToolUnavailable {
            message,
            started,
            retry_after,
        },
        ToolError::Upstream {
            message,
            retryable,
            unavailable,
            not_delivered,
            retry_after,
            cause,
        } => CallError::UpstreamFailed {
            message,
            retryable,
            unavailable,
            not_delivered,
            retry_after,
            cause,
        },
        ToolError::BadOutput(message) => CallError::BadOutput(message),
        ToolError::DefinitionChanged => CallError::DefinitionChanged {
            tool: tool.to_string(),
        },
    })
}
