//! A unary call of gRPC over the HTTP/2 client of the service.
//!
//! OTLP needs one kind of call: one message in, one message out, no compression. That is five bytes
//! before the message and a status after the answer
//! (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>). A gRPC library would bring a
//! second client with its own connections and TLS settings.

use http_body_util::BodyExt as _;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use reqwest::{Body, RequestBuilder, Response};

use super::exporter::Failure;

const GRPC_STATUS: &str = "grpc-status";
const GRPC_MESSAGE: &str = "grpc-message";
/// The flag for compression, and the length of the message.
const PREFIX_BYTES: usize = 5;
/// The longest answer that is read.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Makes the request that carries a message.
pub(super) fn prepare(request: RequestBuilder, message: &[u8]) -> RequestBuilder {
    let mut framed = Vec::with_capacity(PREFIX_BYTES + message.len());
    framed.push(0);
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(message);
    request
        .header(CONTENT_TYPE, HeaderValue::from_static("application/grpc"))
        .header(TE, HeaderValue::from_static("trailers"))
        .body(framed)
}

/// Reads the answer: its message, if the status says that the call succeeded.
pub(super) async fn read(response: Response) -> Result<Vec<u8>, Failure> {
    let status = response.status();
    if !status.is_success() {
        let message = format!("status {status}; is this a collector that speaks gRPC?");
        return Err(match status.as_u16() {
            429 | 502..=504 => Failure::retryable(message),
            _ => Failure::permanent(message),
        });
    }
    let (head, body) = hyper::http::Response::<Body>::from(response).into_parts();
    // Without a message, the status is in the headers.
    if head.headers.contains_key(GRPC_STATUS) {
        return read_status(&head.headers).map(|()| Vec::new());
    }
    let body = http_body_util::Limited::new(body, MAX_ANSWER_BYTES)
        .collect()
        .await;
    let body = body.map_err(|error| Failure::retryable(error.to_string()))?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    read_status(&trailers)?;
    let bytes = body.to_bytes();
    Ok(bytes.get(PREFIX_BYTES..).unwrap_or_default().to_vec())
}

fn read_status(fields: &HeaderMap) -> Result<(), Failure> {
    let text = |name: &str| fields.get(name).and_then(|value| value.to_str().ok());
    let code = text(GRPC_STATUS).unwrap_or("none");
    let message = || {
        format!(
            "gRPC status {code}: {}",
            text(GRPC_MESSAGE).unwrap_or_default()
        )
    };
    match code {
        "0" => Ok(()),
        // OTLP: cancelled, deadline exceeded, aborted, out of range, unavailable, data loss.
        "1" | "4" | "10" | "11" | "14" | "15" => Err(Failure::retryable(message())),
        _ => Err(Failure::permanent(message())),
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderName;

    use super::*;

    fn status(fields: &[(&'static str, &'static str)]) -> Result<(), Failure> {
        let fields = fields.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        read_status(&fields.collect())
    }

    #[test]
    fn status_decides_about_a_retry() {
        assert!(status(&[("grpc-status", "0")]).is_ok());
        assert!(status(&[("grpc-status", "14")]).unwrap_err().is_retryable);
        let denied = status(&[("grpc-status", "16"), ("grpc-message", "no key")]).unwrap_err();
        assert!(!denied.is_retryable && denied.message.contains("no key"));
        assert!(status(&[]).is_err(), "a broken answer is not a success");
    }
}
