//! The HTTP API: routes, problems and response modes. Only this folder knows axum and statuses.

mod auth;
mod body;
mod calls;
mod docs;
mod documented;
mod etag;
mod events;
mod guard;
mod health;
mod idempotency;
mod invocations;
mod mcp;
mod memory;
mod metrics;
mod openapi;
mod prefer;
mod problem;
mod registration;
mod request_id;
mod respond;
mod responses;
mod results;
mod server;
mod settings;
mod sources;
mod state;
mod tools;
mod usage;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower::ServiceBuilder;
use tower::util::{MapRequestLayer, MapResponseLayer};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::request_id::{PropagateRequestIdLayer, SetRequestIdLayer};
use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

pub use calls::calls_in_process;
pub use problem::{ApiError, Problem};
pub use server::serve;
pub use settings::ServerSettings;
pub use tools::call_in_process;
pub use usage::ToolUsage;
pub use wire::{DeclaredTool, InvocationView, ToolView};

use self::guard::Guard;
use self::state::AppState;
use crate::call::Definition;
use crate::live::Live;

/// Makes the router: every route, inside the layers. The first layer of the list is the outermost. `ending` ends the
/// streams that clients keep open without a call.
pub fn router(live: Arc<Live>, settings: &ServerSettings, ending: &CancellationToken) -> Router {
    let (routes, document) = api().split_for_parts();
    let ids = request_id::Ids { random: || fastrand::u128(..) };
    let layers = ServiceBuilder::new()
        .layer(MapResponseLayer::new(guard::restrict))
        .layer(MapRequestLayer::new(request_id::vetted))
        .layer(SetRequestIdLayer::x_request_id(ids))
        .layer(PropagateRequestIdLayer::x_request_id())
        .layer(axum::middleware::from_fn_with_state(live.registry().shared().metrics.clone(), metrics::count))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(axum::middleware::from_fn_with_state(Guard::new(settings), guard::guard));
    routes
        .merge(docs::routes(&document))
        .fallback(|| async { ApiError::NotFound("there is no such route; /docs shows those that are".into()) })
        .method_not_allowed_fallback(|| async { ApiError::Method })
        .with_state(AppState::new(live, settings.max_body, ending))
        .layer(layers)
}

/// The OpenAPI document of the fixed routes.
pub fn openapi() -> utoipa::openapi::OpenApi {
    api().split_for_parts().1
}

/// The OpenAPI document with an operation for each of these tools.
pub fn openapi_with<'a>(tools: impl IntoIterator<Item = &'a Definition>) -> Value {
    openapi::Fixed::new(&openapi()).with_tools(tools)
}

fn api() -> OpenApiRouter<AppState> {
    OpenApiRouter::with_openapi(docs::Frame::openapi())
        .routes(routes!(tools::list))
        .routes(routes!(tools::get))
        .routes(routes!(registration::put))
        .routes(routes!(registration::delete))
        .routes(routes!(tools::invoke))
        .routes(routes!(tools::validate))
        .routes(routes!(tools::enable))
        .routes(routes!(tools::disable))
        .routes(routes!(tools::reset_usage))
        .routes(routes!(tools::purge_one))
        .routes(routes!(tools::purge_all))
        .routes(routes!(calls::calls))
        .routes(routes!(mcp::post, mcp::get, mcp::delete))
        .routes(routes!(invocations::list))
        .routes(routes!(invocations::get, invocations::cancel))
        .routes(routes!(results::get))
        .routes(routes!(usage::get))
        .routes(routes!(sources::list))
        .routes(routes!(sources::restart))
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .routes(routes!(metrics::get))
}

fn panicked(panic: Box<dyn std::any::Any + Send>) -> Response {
    drop(panic);
    tracing::error!("a handler panicked");
    ApiError::Internal.into_response()
}
