//! From a failed call to what a model and its program are told.
//!
//! MCP (Tools, Error Handling) keeps errors of the protocol for what no model can mend: an unknown tool, a request that is
//! none, a context that a tool cannot use, a tool that its caller may not use, an idempotency key that is another call's. All else, most refusals included, is a
//! result with `isError` that says in words what to do. Beside either stands what a problem of REST says: under
//! `toolcrib/problem`, or as the error's `data`.

use rmcp::ErrorData;
use rmcp::model::ErrorCode;
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

/// A call that was refused, as JSON-RPC says it; `data` has which kind it is. Of the codes that are left to implementations
/// (-32000 to -32019) one that no SDK uses.
const REFUSED: ErrorCode = ErrorCode(-32010);

/// A call that is answered with an error of JSON-RPC.
#[derive(Debug)]
pub struct Refused {
    /// The error.
    pub error: ErrorData,
    /// What REST says, where an answer has a status of its own.
    pub failure: Option<Box<Failure>>,
}

impl From<ErrorData> for Refused {
    fn from(error: ErrorData) -> Self {
        Self { error, failure: None }
    }
}

/// The words for the model, and the `_meta`; `id`: of the call, if one began.
///
/// # Errors
/// The failure is no result: `-32602` for a request that lacks what this tool's calls must have, else `-32010`.
pub(super) fn said(
    error: &CallError,
    effect: Effect,
    id: Option<InvocationId>,
) -> Result<(Content, JsonObject), Refused> {
    if let CallError::KeyMissing { tool } = error {
        let wanted = format!(
            "tool `{tool}` wants an idempotency key: `_meta` has `toolcrib/idempotencyKey`, the same with every \
             repetition of a call, another for each new call"
        );
        return Err(ErrorData::invalid_params(wanted, None).into());
    }
    // The program behind the model sent it, so it is told and not the model.
    if let CallError::InvalidContext(what) = error {
        return Err(ErrorData::invalid_params(format!("_meta, toolcrib/context: {what}"), None).into());
    }
    let failure = Failure::of(error, effect);
    let invocation_id = id.and_then(|id| error.on_record(id));
    let Failure { kind, detail, retryable, retry_after_ms, violations, .. } = &failure;
    let (retryable, retry_after_ms) = (*retryable, *retry_after_ms);
    let source = kind.source();
    let problem = Problem { kind: *kind, source, detail, retryable, retry_after_ms, invocation_id, violations };
    let problem = json!(problem);
    if is_refused(*kind) {
        let error = ErrorData::new(REFUSED, failure.for_model.clone(), Some(problem));
        return Err(Refused { error, failure: Some(Box::new(failure)) });
    }
    let mut meta = JsonObject::new();
    if let Some(id) = invocation_id {
        meta.insert("toolcrib/invocationId".into(), id.to_string().into());
    }
    meta.insert("toolcrib/problem".into(), problem);
    Ok((Content::text(failure.for_model), meta))
}

/// Nothing that another call of the model's could mend.
fn is_refused(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Forbidden | ErrorKind::IdempotencyInProgress | ErrorKind::IdempotencyMismatch)
}
