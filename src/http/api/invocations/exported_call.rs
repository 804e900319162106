//! A recorded call as `toolcrib export` writes it: what `GET /invocations/{id}` shows, without what only
//! the service knows.

use serde::Serialize;
use serde_json::{Value, json};

use super::recorded_result::{AttemptError, recorded_result};
use crate::call::Digest;
use crate::http::api::wire::InvocationView;
use crate::ledger::{RecordedCall, UnreadableRow};

/// The fields of an exported call.
#[derive(Serialize)]
struct ExportedCall {
    #[serde(flatten)]
    invocation: InvocationView,
    result: Value,
    result_digest: Option<Digest>,
    attempt_errors: Vec<AttemptError>,
}

/// The call as JSON.
///
/// # Errors
/// When its row cannot be read. The cause is logged.
pub(crate) fn exported_call(call: RecordedCall) -> Result<Value, UnreadableRow> {
    // The definition of the tool is not part of the ledger.
    let (result, result_digest) = recorded_result(&call.row, call.origin_result, || false)?;
    Ok(json!(ExportedCall {
        invocation: InvocationView::from(&call.row),
        result,
        result_digest,
        attempt_errors: call.attempts.into_iter().map(AttemptError::from).collect(),
    }))
}
