//! The HTTP API of MCP Toolbox for Databases, for its clients (`compat.toolbox`).
//!
//! - `GET /api/toolset`, `GET /api/toolset/{name}`: tools; a toolset is one of the manifest, or a tag
//! - `GET /api/tool/{name}`: one tool
//! - `POST /api/tool/{name}/invoke`: a call; the body is the object with the arguments
//!
//! A call takes the same way as `POST /tools/{name}/invoke`. As in MCP Toolbox, a failure that a
//! model can learn from is a result with status 200. Newer clients speak MCP: see `mcp/toolbox.rs`.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde_json::{Value, json};
use tower_http::request_id::RequestId;

use super::tools::route::{api_error_for_call, resolve_allowed, resolve_tool};
use crate::call::{Answer, Content, EMPTY_ERROR_MESSAGE, ErrorKind, FailureSource, JsonObject};
use crate::catalog::{Entry, NewCall};
use crate::formats::toolbox;
use crate::http::edge::auth::Authenticated;
use crate::http::edge::body::{CallJson, PathPart};
use crate::http::edge::request_id;
use crate::http::headers::call_headers;
use crate::http::mcp;
use crate::http::problem::{ApiError, Problem};
use crate::http::state::AppState;
use crate::manifest::ServerSettings;

/// Why a block is not in the text of a result.
const ONLY_TEXT: &str = "a client of MCP Toolbox takes only text";

/// The routes, if the setting is on. Otherwise `/mcp/{toolset}` has the same clients as `/mcp`.
pub(crate) fn routes(settings: &ServerSettings) -> Router<AppState> {
    if !settings.serves_toolbox {
        let one = post(mcp::post).get(mcp::get).delete(mcp::delete);
        return Router::new().route("/mcp/{toolset}", one);
    }
    Router::new()
        .route("/api/toolset", get(list_all))
        .route("/api/toolset/", get(list_all))
        .route("/api/toolset/{name}", get(list_toolset))
        .route("/api/tool/{name}", get(get_tool))
        .route("/api/tool/{name}/invoke", post(invoke_tool))
        .route("/mcp/", post(mcp::post_all))
        .route("/mcp/{toolset}", post(mcp::post_toolset))
}

/// An error in the shape of MCP Toolbox, with the status of the problem.
#[derive(derive_more::From)]
struct ToolboxError(ApiError);

impl IntoResponse for ToolboxError {
    fn into_response(self) -> Response {
        let problem = Problem::from(self.0);
        problem.respond_with(json!({
            "status": problem.reason_phrase(),
            "error": problem.detail,
        }))
    }
}

/// Tools by name.
fn respond_with_tools<'a>(tools: impl IntoIterator<Item = (&'a str, &'a Arc<Entry>)>) -> Response {
    let tools = tools.into_iter();
    let tools: JsonObject = tools
        .map(|(name, entry)| (name.to_owned(), toolbox::render_tool(&entry.definition)))
        .collect();
    Json(json!({"serverVersion": env!("CARGO_PKG_VERSION"), "tools": tools})).into_response()
}

type Auth = Result<Authenticated, ApiError>;
type Name = Result<PathPart, ApiError>;

async fn list_all(auth: Auth) -> Result<Response, ToolboxError> {
    list_tools(auth?, None)
}

async fn list_toolset(auth: Auth, name: Name) -> Result<Response, ToolboxError> {
    let (auth, PathPart(name)) = (auth?, name?);
    list_tools(auth, Some(&name))
}

fn list_tools(
    Authenticated { caller, catalog }: Authenticated,
    toolset: Option<&str>,
) -> Result<Response, ToolboxError> {
    let selection = toolset.map(|name| mcp::find_toolset(&catalog, name.to_owned()));
    let entries = catalog.selected_tools(&caller, &selection.unwrap_or_default());
    if let Some(name) = toolset.filter(|_| entries.is_empty()) {
        return Err(ApiError::NotFound(toolbox::no_toolset(name)).into());
    }
    let shown = entries.iter().filter(|entry| entry.is_available());
    let shown = shown.map(|entry| (entry.definition.name.as_str(), entry));
    Ok(respond_with_tools(shown))
}

async fn get_tool(auth: Auth, name: Name) -> Result<Response, ToolboxError> {
    let Authenticated { caller, catalog } = auth?;
    let PathPart(name) = name?;
    let entry = resolve_allowed(&catalog, &name, &caller)?;
    // Clients look for the name that they requested.
    Ok(respond_with_tools([(name.as_str(), &entry)]))
}

async fn invoke_tool(
    State(state): State<AppState>,
    auth: Auth,
    name: Name,
    request_id: Option<Extension<RequestId>>,
    request: Request,
) -> Result<Response, ToolboxError> {
    let Authenticated { caller, catalog } = auth?;
    let PathPart(name) = name?;
    let (entry, name_match) = resolve_tool(&catalog, &name, &caller)?;
    let registry = state.registry.clone();
    let headers = request.headers();
    let key = call_headers::key_from_headers(headers)?;
    let run_id = call_headers::run_id_from_headers(headers)?;
    let trace = request_id::trace_from_headers(headers);
    // Its memory stays reserved until the call has ended.
    let CallJson(body, _reserved, repairs) = CallJson::from_request(request, &state).await?;
    let Value::Object(arguments) = body else {
        let detail = "the body is not an object: send the arguments by name";
        return Err(ApiError::Malformed(detail.into()).into());
    };
    let now = registry.shared().clock.now();
    let mut call = NewCall {
        repairs,
        idempotency_key: key,
        request_id: request_id.and_then(|id| Some(id.header_value().to_str().ok()?.into())),
        trace,
        ..NewCall::new((&name, name_match), caller.clone(), Ok(arguments), now)
    };
    call.options.run_id = run_id.map(Into::into);
    let invocation = entry.new_invocation(call);
    // A call may take long, and must not keep an old catalog alive.
    drop(catalog);
    let id = invocation.id;
    let answer = match registry.invoke(&entry, invocation).await {
        Ok(answer) => answer,
        Err(error) => {
            let error = api_error_for_call(&error, &entry, id);
            return match &error {
                ApiError::Call { failure, .. } if teaches_model(failure.kind) => {
                    Ok(respond(error_text(&failure.for_model)))
                }
                _ => Err(error.into()),
            };
        }
    };
    let content = answer.model_content(|| registry.catalog().find_result_reader(&caller, |_| true));
    let text = result_text(
        &answer,
        content.as_deref().unwrap_or(&answer.result.content),
    );
    let mut response = respond(match answer.result.is_error {
        true if text == NO_RESULT => error_text(EMPTY_ERROR_MESSAGE),
        true => error_text(&text),
        false => text,
    });
    if answer.replayed {
        call_headers::mark_replayed(&mut response);
    }
    Ok(response)
}

/// Whether a failure is a result with status 200, as in MCP Toolbox: the tool failed, or its
/// arguments were invalid.
fn teaches_model(kind: ErrorKind) -> bool {
    kind == ErrorKind::InvalidArguments || kind.facts().source == FailureSource::Tool
}

fn respond(result: String) -> Response {
    Json(json!({"result": result})).into_response()
}

fn error_text(message: &str) -> String {
    json!({"error": message}).to_string()
}

/// The text of a result without content, as in MCP Toolbox.
const NO_RESULT: &str = "null";

/// The result as one text. Results are text here, so JSON stays JSON inside the text.
fn result_text(answer: &Answer, content: &[Content]) -> String {
    let texts: Vec<Cow<'_, str>> = content
        .iter()
        .map(|block| toolcrib_dialect::block_as_text(block, ONLY_TEXT))
        .collect();
    let data = answer.result.structured_content.as_ref();
    match (texts.is_empty(), data) {
        (true, Some(data)) => data.to_string(),
        (true, None) => NO_RESULT.to_owned(),
        (false, _) => texts.join("\n"),
    }
}
