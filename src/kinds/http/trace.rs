//! Adds the trace of a call to the requests that are sent for the call.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::call::TraceContext;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Adds the headers of the call's trace. If the manifest sets a `traceparent`, that is another
/// trace, and nothing is added.
pub(crate) fn add_trace_headers(trace: Option<&TraceContext>, fields: &mut HeaderMap) {
    let Some(trace) = trace.filter(|_| !fields.contains_key(TRACEPARENT)) else {
        return;
    };
    let state = trace
        .tracestate()
        .filter(|_| !fields.contains_key(TRACESTATE));
    for (name, value) in [
        (TRACEPARENT, Some(trace.traceparent())),
        (TRACESTATE, state),
    ] {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            fields.insert(name, value);
        }
    }
}
