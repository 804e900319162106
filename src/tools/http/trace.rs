//! The trace of a call, sent on with the requests that are made for it.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::call::TraceContext;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Adds the headers of the call's trace. A `traceparent` of the manifest's is another trace: nothing is added to that.
pub(crate) fn send_on(trace: Option<&TraceContext>, fields: &mut HeaderMap) {
    let Some(trace) = trace.filter(|_| !fields.contains_key(TRACEPARENT)) else { return };
    let state = trace.tracestate().filter(|_| !fields.contains_key(TRACESTATE));
    for (name, value) in [(TRACEPARENT, Some(trace.traceparent())), (TRACESTATE, state)] {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            fields.insert(name, value);
        }
    }
}
