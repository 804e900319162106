//! From a failed call to what a model and its program are told.
//!
//! MCP (Tools, Error Handling) keeps errors of the protocol for what no model can mend: an unknown tool, a request that is
//! none. All else, refusals included, is a result with `isError` that says in words what to do, and beside it, under
//! `toolcrib/problem`, what a problem of REST says.

use serde::Serialize;
use serde_json::json;

use crate::call::{CallError, Content, Effect, ErrorKind, Failure, InvocationId, JsonObject, Source, Violation};

/// What is said of a failure beside its words.
#[derive(Serialize)]
struct Problem<'a> {
    kind: ErrorKind,
    source: Source,
    detail: &'a str,
    retryable: bool,
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    invocation_id: Option<InvocationId>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    violations: &'a [Violation],
}

/// The words for the model, and the `_meta`; `id`: of the call, if one began.
pub(super) fn said(error: &CallError, effect: Effect, id: Option<InvocationId>) -> (Content, JsonObject) {
    let failure = Failure::of(error, effect);
    let invocation_id = id.and_then(|id| error.on_record(id));
    let Failure { kind, detail, retryable, retry_after_ms, violations, .. } = &failure;
    let (retryable, retry_after_ms) = (*retryable, *retry_after_ms);
    let source = kind.source();
    let problem = Problem { kind: *kind, source, detail, retryable, retry_after_ms, invocation_id, violations };
    let mut meta = JsonObject::new();
    if let Some(id) = invocation_id {
        meta.insert("toolcrib/invocationId".into(), id.to_string().into());
    }
    meta.insert("toolcrib/problem".into(), json!(problem));
    (Content::text(failure.for_model), meta)
}
