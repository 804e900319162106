//! The HTTP API: routes, problems and response modes. Apart from `app/`, only this folder knows
//! axum.

mod approval_page;
mod approval_view;
mod approvals;
mod auth;
mod body;
mod calls;
mod console;
mod cors;
mod docs;
mod documented;
mod etag;
mod event_feed;
mod events;
mod examples;
mod exported_call;
mod guard;
mod health;
mod idempotency;
mod imported_call;
mod invocations;
mod invoke_request;
mod json_response;
mod limits;
mod mcp;
mod memory;
mod metrics;
mod openapi;
mod prefer;
mod problem;
mod query;
mod question_view;
mod questions;
mod recorded_result;
mod registration;
mod replicas;
mod request_error;
mod request_id;
mod respond;
mod responses;
mod results;
mod routes;
mod run_id;
mod server;
mod single_header;
mod sources;
mod state;
mod static_files;
mod token_sums;
mod toolbox;
mod tools;
mod usage;
mod usage_buckets;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower::ServiceBuilder;
use tower::util::{MapRequestLayer, MapResponseLayer};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::request_id::{PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::validate_request::ValidateRequestHeaderLayer;

pub use calls::calls_in_process;
pub(crate) use exported_call::exported_call;
pub(crate) use imported_call::read_imported_call;
pub(crate) use metrics::gather_metrics;
pub use problem::{ApiError, Problem};
pub use server::serve;

pub use tools::call_in_process;
pub use usage::ToolUsage;
pub use wire::{DeclaredTool, InvocationView, ToolView};

use self::guard::Guard;
use self::routes::api_router;
use self::state::AppState;
use crate::call::{Definition, Effect};
use crate::manifest::ServerSettings;
use crate::sources::live::LiveTools;

/// Makes the router: every route, inside the layers. The first layer of the list is the outermost.
/// `shutdown` ends the streams that clients keep open without a call.
pub fn router(
    live: Arc<LiveTools>,
    settings: &ServerSettings,
    shutdown: &CancellationToken,
) -> Router {
    let (routes, _) = api_router().split_for_parts();
    let ids = request_id::RequestIdGenerator {
        random: || fastrand::u128(..),
    };
    let layers = ServiceBuilder::new()
        .layer(MapResponseLayer::new(guard::add_security_headers))
        .layer(MapRequestLayer::new(request_id::remove_invalid_id))
        .layer(SetRequestIdLayer::x_request_id(ids))
        .layer(PropagateRequestIdLayer::x_request_id())
        .layer(metrics::CountRequestsLayer::new(
            live.registry().shared().metrics.clone(),
        ))
        .layer(CatchPanicLayer::custom(panic_response))
        .layer(ValidateRequestHeaderLayer::custom(Guard::new(settings)))
        .option_layer(cors::layer_for(&settings.allowed_origins));
    routes
        .merge(docs::routes(openapi))
        .merge(console::routes())
        .merge(approval_page::routes())
        .merge(toolbox::routes(settings))
        .fallback(|uri: Uri| async move {
            let advice = match uri.path().strip_suffix('/') {
                Some(_) => "write the path without the `/` at its end",
                None => "/docs lists the routes",
            };
            ApiError::NotFound(format!("there is no such route; {advice}"))
        })
        .method_not_allowed_fallback(|| async { ApiError::MethodNotAllowed })
        .with_state(AppState::new(live, settings, shutdown))
        .layer(layers)
}

/// The OpenAPI document of the fixed routes.
pub fn openapi() -> utoipa::openapi::OpenApi {
    api_router().split_for_parts().1
}

/// The OpenAPI document with an operation for each of these tools. The effects decide which tool
/// its examples call.
pub fn openapi_with_tools<'a>(tools: impl IntoIterator<Item = (&'a Definition, Effect)>) -> Value {
    openapi::FixedRoutes::new(&openapi()).with_tools(tools)
}

fn panic_response(panic: Box<dyn std::any::Any + Send>) -> Response {
    drop(panic);
    tracing::error!("a handler panicked");
    ApiError::Internal.into_response()
}
