//! `POST /calls` without a server.

use std::sync::Arc;

use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::request::{CallsQuery, CallsRequest, MessageBody};
use super::resume;
use super::turn::Turn;
use crate::call::json::parse_foreign;
use crate::call::{Caller, IdempotencyKey};
use crate::catalog::registry::Registry;
use crate::http::problem::{ApiError, Problem};

/// Runs the calls of a message without a server, as the operator. A message that is not JSON is a
/// model's text.
///
/// Returns the body that the route would have answered, and whether all tools ran without an error
/// result.
pub async fn calls_in_process(
    registry: &Arc<Registry>,
    message: &str,
    dialect: Option<String>,
    run_id: Option<String>,
    key: Option<IdempotencyKey>,
) -> (Value, bool) {
    let body = match parse_foreign(message.as_bytes()) {
        Ok((json, changes)) => MessageBody::Json(json, changes),
        // Strict parsing also refuses valid JSON, such as duplicate keys. That is not a model's
        // text.
        Err(error) if serde_json::from_str::<IgnoredAny>(message).is_ok() => {
            let problem = Problem::from(ApiError::Malformed(format!(
                "the message is not JSON: {error}"
            )));
            return (json!(problem), false);
        }
        Err(_) => MessageBody::Text(message.to_owned()),
    };
    let caller = Arc::new(Caller::anonymous());
    let (registry, catalog) = (registry.clone(), registry.catalog());
    let turn = Turn {
        registry,
        catalog,
        caller,
        key,
        request_id: None,
        trace: None,
        progress: None,
    };
    let request = CallsRequest::from_parts(CallsQuery::new(dialect, run_id), body);
    if let Ok(request) = &request
        && !request.resume.is_empty()
    {
        let (ids, dialect) = (&request.resume, request.dialect);
        return match resume::resume(&turn.registry, &turn.caller, ids, dialect).await {
            Ok(answer) => (answer, true),
            Err(error) => (json!(Problem::from(error)), false),
        };
    }
    let read = request
        .and_then(|mut request| Ok((request.take_message(&turn.catalog, &turn.caller)?, request)));
    match read {
        Ok((message, request)) => {
            let answered = turn.run_calls(message, &request).await;
            (json!(answered.to_answer()), answered.is_ok())
        }
        Err(error) => (json!(Problem::from(error)), false),
    }
}
