//! Every request has an id: its sender's own, or one of ours. It comes back in the answer, problems included, and stands
//! in the log line of the call. It may be part of a trace, too.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use tower_http::request_id::{MakeRequestId, RequestId};
use uuid::Uuid;

use crate::call::TraceContext;

/// Longest id that is taken over.
const LONGEST: usize = 128;

/// The header, by the name that proxies give it.
const X_REQUEST_ID: &str = "x-request-id";

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The trace that a request belongs to, if it says so in a way that is valid.
pub(super) fn trace(headers: &HeaderMap) -> Option<Arc<TraceContext>> {
    let all = |name| headers.get_all(name).iter().map(HeaderValue::as_bytes);
    TraceContext::read(all(TRACEPARENT), all(TRACESTATE)).map(Arc::new)
}

/// Takes an id away that must not be repeated into logs and answers: too long, more than one, or not visible ASCII. The
/// request then gets one of ours.
pub(super) fn vetted(mut request: Request) -> Request {
    let mut ids = request.headers().get_all(X_REQUEST_ID).iter();
    if let Some(id) = ids.next()
        && (ids.next().is_some()
            || id.len() > LONGEST
            || id.is_empty()
            || !id.as_bytes().iter().all(u8::is_ascii_graphic))
    {
        request.headers_mut().remove(X_REQUEST_ID);
    }
    request
}

/// Makes ids: random UUIDs. They only have to differ, so `random` need not be the system's source, which would cost a
/// system call for each request.
#[derive(Clone)]
pub(super) struct Ids {
    pub(super) random: fn() -> u128,
}

impl MakeRequestId for Ids {
    fn make_request_id<B>(&mut self, _: &axum::http::Request<B>) -> Option<RequestId> {
        let id = uuid::Builder::from_random_bytes((self.random)().to_be_bytes()).into_uuid();
        let mut text = Uuid::encode_buffer();
        HeaderValue::from_str(id.hyphenated().encode_lower(&mut text)).ok().map(RequestId::new)
    }
}
