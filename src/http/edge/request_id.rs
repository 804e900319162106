//! The id and the trace of a request.
//!
//! Every request has an id: the client's own, or a generated one. It is in the answer, also in a
//! problem, and in the call's log line. A request may also be part of a trace.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use tower_http::request_id::{MakeRequestId, RequestId};
use uuid::Uuid;

use crate::call::TraceContext;

/// Longest client id that is accepted, in bytes.
const MAX_ID_BYTES: usize = 128;

/// The header of the id, with the name that proxies use.
const X_REQUEST_ID: &str = "x-request-id";

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The trace that a request belongs to, if its headers name a valid one.
pub(crate) fn trace_from_headers(headers: &HeaderMap) -> Option<Arc<TraceContext>> {
    let all = |name| headers.get_all(name).iter().map(HeaderValue::as_bytes);
    TraceContext::from_headers(all(TRACEPARENT), all(TRACESTATE)).map(Arc::new)
}

/// Removes an id that must not appear in logs and answers: empty, too long, more than one, or not
/// visible ASCII. The request then gets a generated id.
pub(crate) fn remove_invalid_id(mut request: Request) -> Request {
    let mut ids = request.headers().get_all(X_REQUEST_ID).iter();
    if let Some(id) = ids.next()
        && (ids.next().is_some()
            || id.len() > MAX_ID_BYTES
            || id.is_empty()
            || !id.as_bytes().iter().all(u8::is_ascii_graphic))
    {
        request.headers_mut().remove(X_REQUEST_ID);
    }
    request
}

/// Generates ids: random UUIDs. They need not be secret, so `random` may be a fast generator. The
/// system's source would cost a system call for each request.
#[derive(Clone)]
pub(crate) struct RequestIdGenerator {
    pub(crate) random: fn() -> u128,
}

impl MakeRequestId for RequestIdGenerator {
    fn make_request_id<B>(&mut self, _: &axum::http::Request<B>) -> Option<RequestId> {
        let id = uuid::Builder::from_random_bytes((self.random)().to_be_bytes()).into_uuid();
        let mut text = Uuid::encode_buffer();
        HeaderValue::from_str(id.hyphenated().encode_lower(&mut text))
            .ok()
            .map(RequestId::new)
    }
}
