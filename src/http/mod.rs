//! The HTTP API. Apart from `app/`, only this folder knows axum.
//!
//! - `edge/`: what each connection and request passes before its route
//! - `api/`: the routes, one file or folder for each noun; `approvals/`: those of approval
//! - `mcp/`: `/mcp` over HTTP
//! - `openapi/`: the OpenAPI document; `pages/`: the pages for people
//! - `routes.rs` lists the fixed routes, and `state.rs` is the state of the handlers
//! - `problem.rs` maps failures to statuses; `headers/`, `query.rs`, `json_response.rs` and
//!   `events.rs` are parts of requests and answers

mod api;
mod approvals;
mod edge;
mod events;
mod headers;
mod json_response;
mod mcp;
mod openapi;
mod pages;
mod problem;
mod query;
mod routes;
mod state;

use std::sync::Arc;

use axum::Router;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower::ServiceBuilder;
use tower::layer::layer_fn;
use tower::util::{MapRequestLayer, MapResponseLayer};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::request_id::{PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::validate_request::ValidateRequestHeaderLayer;

pub(crate) use self::api::audit::AuditPage;
pub use self::api::calls::calls_in_process;
pub(crate) use self::api::invocations::portable_call::{exported_call, read_imported_call};
pub(crate) use self::api::metrics::gather_metrics;
pub use self::api::tools::route::call_in_process;
pub use self::api::usage::route::ToolUsage;
pub use self::api::wire::{DeclaredTool, InvocationView, ToolView};
pub use self::edge::server::serve;
pub use self::problem::{ApiError, Problem};

use self::api::metrics::CountRequests;
use self::api::toolbox;
use self::edge::guard::{self, Guard};
use self::edge::{cors, request_id};
use self::openapi::document::FixedRoutes;
use self::pages::{console, docs};
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
    let ids = request_id::RequestIdGenerator {
        random: || fastrand::u128(..),
    };
    let metrics = live.registry().shared().metrics.clone();
    let layers = ServiceBuilder::new()
        .layer(MapResponseLayer::new(guard::add_security_headers))
        .layer(MapRequestLayer::new(request_id::remove_invalid_id))
        .layer(SetRequestIdLayer::x_request_id(ids))
        .layer(PropagateRequestIdLayer::x_request_id())
        .layer(layer_fn(move |inner| CountRequests {
            inner,
            metrics: metrics.clone(),
        }))
        .layer(CatchPanicLayer::custom(panic_response))
        .layer(ValidateRequestHeaderLayer::custom(Guard::new(settings)))
        .option_layer(cors::layer_for(&settings.allowed_origins));
    api_router()
        .merge(docs::routes(fixed_routes))
        .merge(console::routes())
        .merge(approvals::routes())
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

/// The OpenAPI document with an operation for each of these tools. The effects decide which tool
/// its examples call.
pub fn openapi_with_tools<'a>(tools: impl IntoIterator<Item = (&'a Definition, Effect)>) -> Value {
    fixed_routes().with_tools(tools)
}

/// The document of the fixed routes. An optimized build has the committed one, because the code that
/// makes it is large. Other builds make it, and a test compares the two.
fn fixed_routes() -> FixedRoutes {
    if cfg!(debug_assertions) {
        FixedRoutes::described(&routes::describe())
    } else {
        FixedRoutes::committed()
    }
}

fn panic_response(panic: Box<dyn std::any::Any + Send>) -> Response {
    drop(panic);
    tracing::error!("a handler panicked");
    ApiError::Internal.into_response()
}
