//! The end of a recorded call as answers show it: its result, and its failed attempts.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::call::{Digest, ErrorKind};
use crate::http::api::wire::InvokeAnswer;
use crate::http::problem::Problem;
use crate::ledger::{AttemptRow, End, Row, UnreadableRow};

/// A failed attempt.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct AttemptError {
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Why.
    pub kind: ErrorKind,
    /// What happened.
    pub message: String,
    /// How long it took.
    pub duration_ms: f64,
}

impl From<AttemptRow> for AttemptError {
    fn from(row: AttemptRow) -> Self {
        let duration_ms = row.duration_us as f64 / 1000.0;
        Self {
            attempt: row.attempt,
            kind: row.kind,
            message: row.message,
            duration_ms,
        }
    }
}

/// The answer or the problem, made again from the row, or the digest that replaces it.
/// `is_final_answer` tells whether the results of the tool are final answers by its definition.
pub(crate) fn recorded_result(
    row: &Row,
    origin_result: Option<Arc<str>>,
    is_final_answer: impl FnOnce() -> bool,
) -> Result<(Value, Option<Digest>), UnreadableRow> {
    Ok(match row.decode_end(origin_result)? {
        End::Open => (Value::Null, None),
        End::DigestOnly(digest) => (Value::Null, Some(digest)),
        End::Failed(mut failure) => {
            let digest = failure.digest.take().map(|digest| *digest);
            (json!(Problem::from_failure(failure, Some(row.id))), digest)
        }
        End::Answered { result, meta } => {
            let as_answer = is_final_answer();
            let mut answer = row.to_answer(result, meta);
            // The content of an imported call describes the missing part already.
            let imported = answer.meta.overflow.take();
            answer.meta.overflow = answer.result.source_overflow();
            let content = answer.model_content(|| None);
            answer.meta.overflow = answer.meta.overflow.or(imported);
            (
                json!(InvokeAnswer::new(
                    &row.tool,
                    as_answer,
                    &answer,
                    content.map(Cow::Owned)
                )),
                None,
            )
        }
    })
}
