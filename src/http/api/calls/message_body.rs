//! The body of `POST /calls`.

use serde_json::Value;

use crate::call::json::Changes;

/// The body of a request.
pub(in crate::http) enum MessageBody {
    /// The provider's JSON, or an envelope around it, and what was changed in it.
    Json(Value, Changes),
    /// The model's text, unchanged.
    Text(String),
}
