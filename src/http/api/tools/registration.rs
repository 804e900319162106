//! `PUT` and `DELETE /tools/{name}`: tools registered at run time.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::route::detail_response;
use crate::call::{Caller, Violation};
use crate::catalog::registry::ChangeError;
use crate::http::api::wire::ToolDetail;
use crate::http::edge::auth::{Admin, Principal};
use crate::http::edge::body::{DefinitionJson, PathPart, StrictJson};
use crate::http::openapi::documented::RegisteredTool;
use crate::http::openapi::responses::{
    AuthResponses, BodyResponses, CommonResponses, LedgerResponses, LookupResponses,
    RegistrationResponses,
};
use crate::http::problem::ApiError;
use crate::manifest::{Finding, Severity};
use crate::sources::live::{LiveTools, RegisterError};

/// Number of findings in a problem's detail; `violations` has all of them.
const MAX_NAMED_FINDINGS: usize = 3;

impl From<RegisterError> for ApiError {
    fn from(error: RegisterError) -> Self {
        match error {
            RegisterError::Definition(findings) => invalid_definition(findings),
            RegisterError::Change(error) => error.into(),
        }
    }
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Ledger(error) => Self::Ledger(error),
            ChangeError::Taken(_) | ChangeError::TooMany(_) => Self::Conflict(error.to_string()),
            ChangeError::Tool(error) => Self::Malformed(error.to_string()),
            ChangeError::Unknown(name) => Self::UnknownTool {
                name,
                did_you_mean: Vec::new(),
            },
        }
    }
}

fn invalid_definition(findings: Vec<Finding>) -> ApiError {
    let errors = findings
        .into_iter()
        .filter(|finding| finding.severity == Severity::Error);
    let violations: Vec<Violation> = errors
        .map(|finding| Violation {
            pointer: finding.location.pointer().unwrap_or_default(),
            keyword: "definition".into(),
            message: finding.message,
            schema_pointer: String::new(),
        })
        .collect();
    let describe = |violation: &Violation| match violation.pointer.as_str() {
        "" => violation.message.clone(),
        pointer => format!("{pointer}: {}", violation.message),
    };
    let mut detail = violations
        .iter()
        .take(MAX_NAMED_FINDINGS)
        .map(describe)
        .collect::<Vec<_>>()
        .join("; ");
    if violations.len() > MAX_NAMED_FINDINGS {
        detail.push_str(&format!(
            "; and {} more",
            violations.len() - MAX_NAMED_FINDINGS
        ));
    }
    ApiError::InvalidDefinition { detail, violations }
}

/// Register a tool, or replace the one that was registered under that name. Kept over restarts.
///
/// The body is an entry of the manifest's `tools:` as JSON, of kind `http`, without references
/// (`${…}`), `env` and `allow_private`. Tools of the manifest and of the program cannot be
/// replaced.
#[utoipa::path(put, operation_id = "register_tool", path = "/tools/{name}", tag = "operator", 
    request_body(content = RegisteredTool, description = "A tool of kind `http`, with the keys of a manifest's entry"),
    params(("name" = String, Path, description = "The tool's name")), responses(
    (status = 200, description = "Replaced", body = ToolDetail<'_>),
    (status = 201, description = "Registered", body = ToolDetail<'_>), CommonResponses, AuthResponses, BodyResponses, RegistrationResponses, LedgerResponses))]
pub(crate) async fn register_tool(
    State(live): State<Arc<LiveTools>>,
    _: Admin,
    Principal(caller): Principal,
    PathPart(name): PathPart,
    StrictJson(definition, _reserved): DefinitionJson,
) -> Result<Response, ApiError> {
    let (entry, is_new) = live.register_tool(&name, definition, &caller.name).await?;
    let status = if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((
        status,
        detail_response(live.registry(), &entry, &caller).await?,
    )
        .into_response())
}

/// A tool that was removed.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Deleted {
    /// Name of the tool.
    pub tool: String,
    /// True.
    pub deleted: bool,
}

/// Remove a tool that was registered at run time. Calls in flight finish.
#[utoipa::path(delete, operation_id = "remove_tool", path = "/tools/{name}", tag = "operator",
    params(("name" = String, Path, description = "The tool's name")), responses(
    (status = 200, description = "Removed", body = Deleted), CommonResponses, AuthResponses, LookupResponses, RegistrationResponses, LedgerResponses))]
pub(crate) async fn remove_tool(
    State(live): State<Arc<LiveTools>>,
    _: Admin,
    Principal(caller): Principal,
    PathPart(name): PathPart,
) -> Result<Json<Deleted>, ApiError> {
    live.delete_tool(&name, &caller.name)
        .await
        .map_err(|error| match error {
            ChangeError::Unknown(name) => {
                let did_you_mean = live
                    .registry()
                    .catalog()
                    .did_you_mean(&name, &Caller::anonymous());
                ApiError::UnknownTool { name, did_you_mean }
            }
            other => other.into(),
        })?;
    Ok(Json(Deleted {
        tool: name,
        deleted: true,
    }))
}
