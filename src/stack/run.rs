//! The innermost service: calls the runner and cleans its output.
//!
//! It removes control characters and then secrets from each result and failure, before the ledger,
//! the cache or the caller get them. The order matters: an escape sequence could hide a secret.
//! Then it checks the result against the output schema of the tool.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use base64::read::DecoderReader;
use data_url::forgiving_base64;
use futures_util::FutureExt;
use tokio::time::Instant;
use tower::Service;

use super::output_check::OutputCheck;
use super::{CallFuture, Outcome};
use crate::call::{
    CallError, Content, Invocation, Resource, ToolContext, ToolError, ToolName, ToolResult,
    ToolSettings,
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
            let mut outcome = match (outcome, &inner.output) {
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
            if let Ok(result) = &mut outcome
                && !warnings.is_empty()
            {
                Arc::make_mut(result).warnings.clone_from(warnings);
            }
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
                warnings.extend(check_media(&mut result, &self.redactor));
                self.redactor.redact_result(&mut result);
                Ok(Arc::new(result))
            }
            Err(mut error) => {
                // A host that the arguments select is an argument.
                if let CallError::UpstreamFailed(failure) = &mut error
                    && let Some(cause) = &mut failure.cause
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
        ToolError::Upstream(failure) => CallError::UpstreamFailed(failure),
        ToolError::BadOutput(message) => CallError::BadOutput(message),
        ToolError::DefinitionChanged => CallError::DefinitionChanged {
            tool: tool.to_string(),
        },
    })
}

/// Checks the data of images, sound and files in a result. One invalid block would make MCP clients
/// and providers refuse the whole result.
///
/// Converts data to the standard form (RFC 4648, section 4): with padding and without line breaks.
/// A block becomes a text if its data is not base64, or if its bytes hold a secret: without the
/// secret it would be a damaged file. Returns one sentence for each replaced block.
fn check_media(result: &mut ToolResult, redactor: &Redactor) -> Vec<String> {
    replace_invalid_blocks(result, |data| {
        let has_secret = match redactor.is_secret_in(DecoderReader::new(data.as_bytes(), &BASE64)) {
            Ok(has_secret) => has_secret,
            Err(_) => {
                let bytes = forgiving_base64::decode_to_vec(data.as_bytes())
                    .map_err(|_| "its data is not base64")?;
                *data = BASE64.encode(&bytes);
                redactor.is_secret_in(&*bytes).unwrap_or_default()
            }
        };
        if has_secret {
            Err("a secret is in its data")
        } else {
            Ok(())
        }
    })
}

fn replace_invalid_blocks(
    result: &mut ToolResult,
    check: impl Fn(&mut String) -> Result<(), &'static str>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    for (at, block) in result.content.iter_mut().enumerate() {
        let (kind, data) = match block {
            Content::Text { .. }
            | Content::ResourceLink(_)
            | Content::Resource {
                resource: Resource { blob: None, .. },
            } => continue,
            Content::Image { data, .. } => ("image", data),
            Content::Audio { data, .. } => ("audio", data),
            Content::Resource {
                resource: Resource {
                    blob: Some(blob), ..
                },
            } => ("resource", blob),
        };
        let Err(reason) = check(data) else { continue };
        warnings.push(format!(
            "content.{at}: the {kind} block is left out: {reason}"
        ));
        *block = Content::text(format!("[{kind}: left out, {reason}]"));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::Redactor;

    fn blocks(data: &str) -> ToolResult {
        let (data, mime_type) = (|| data.to_owned(), || "x/y".to_owned());
        let resource = Resource {
            uri: "f:///a".into(),
            blob: Some(data()),
            ..Resource::default()
        };
        let content = vec![
            Content::text("words"),
            Content::Image {
                data: data(),
                mime_type: mime_type(),
            },
            Content::Audio {
                data: data(),
                mime_type: mime_type(),
            },
            Content::Resource { resource },
        ];
        ToolResult {
            content,
            ..ToolResult::default()
        }
    }

    #[test]
    fn base64_is_normalized() {
        let long = BASE64.encode(vec![7; 5000]);
        for (data, standard) in [
            ("", ""),
            ("aGk=", "aGk="),
            ("aGk", "aGk="),
            ("a\nG k=\r\n", "aGk="),
            ("aGl=", "aGk="),
            (&long, &long),
        ] {
            let mut result = blocks(data);
            assert_eq!(
                check_media(&mut result, &Redactor::default()),
                Vec::<String>::new(),
                "{data}"
            );
            assert_eq!(result, blocks(standard));
        }
    }

    #[test]
    fn invalid_base64_becomes_a_text_block() {
        for data in [
            "not base64!!",
            "a",
            "aGk=aGk=",
            "data:image/png;base64,aGk=",
            "_-_-",
        ] {
            let mut result = blocks(data);
            assert_eq!(
                check_media(&mut result, &Redactor::default()).len(),
                3,
                "{data}"
            );
            let words = [
                "words",
                "[image: left out,",
                "[audio: left out,",
                "[resource: left out,",
            ];
            let text = result.as_text();
            assert!(
                text.lines()
                    .zip(words)
                    .all(|(line, start)| line.starts_with(start)),
                "{text}"
            );
        }
    }

    #[test]
    fn media_with_a_secret_becomes_text() {
        let redactor = Redactor::new(["top-secret-word"]);
        let utf_16: Vec<u8> = "top-secret-word"
            .encode_utf16()
            .flat_map(u16::to_be_bytes)
            .collect();
        for before in 0..3 {
            for secret in [
                b"top-secret-word".as_slice(),
                &utf_16,
                hex::encode("top-secret-word").as_bytes(),
            ] {
                let bytes = [&vec![0xff; before][..], secret, b"\xff"].concat();
                let mut result = blocks(&BASE64.encode(&bytes));
                let warnings = check_media(&mut result, &redactor);
                assert_eq!(
                    warnings[0],
                    "content.1: the image block is left out: a secret is in its data"
                );
                assert_eq!((warnings.len(), result.as_text().lines().count()), (3, 4));
            }
        }
        // The secret crosses the blocks in which long data is read, and data that must be converted
        // first.
        for at in [(64 << 10) - 7, (128 << 10) - 20] {
            let bytes = [&vec![0; at][..], b"top-secret-word", &[0; 9]].concat();
            assert_eq!(
                check_media(&mut blocks(&BASE64.encode(&bytes)), &redactor).len(),
                3,
                "{at}"
            );
            assert_eq!(
                check_media(
                    &mut blocks(BASE64.encode(&bytes).trim_end_matches('=')),
                    &redactor
                )
                .len(),
                3,
                "{at}"
            );
        }
        assert!(check_media(&mut blocks(&BASE64.encode("top-secret-ward")), &redactor).is_empty());
    }
}
