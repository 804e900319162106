//! The body of `POST /calls`.

use serde_json::Value;

/// The body of a request.
pub(in crate::http) enum MessageBody {
    /// The provider's JSON, or an envelope around it.
    Json(Value),
    /// The model's text, unchanged.
    Text(String),
}
