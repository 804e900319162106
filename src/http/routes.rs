//! The fixed routes, with their documentation.

use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::api::{
    calls, event_feed, health, invocations, metrics, replicas, sources, tools, usage,
};
use super::pages::docs;
use super::state::AppState;
use super::{approvals, mcp};

/// Every documented route.
pub(super) fn api_router() -> OpenApiRouter<AppState> {
    OpenApiRouter::with_openapi(docs::BaseDocument::openapi())
        .routes(routes!(tools::route::list_tools))
        .routes(routes!(tools::route::get_tool))
        .routes(routes!(tools::registration::register_tool))
        .routes(routes!(tools::registration::remove_tool))
        .routes(routes!(tools::route::invoke_tool))
        .routes(routes!(tools::route::validate_arguments))
        .routes(routes!(tools::route::enable_tool))
        .routes(routes!(tools::route::disable_tool))
        .routes(routes!(tools::route::reset_usage))
        .routes(routes!(tools::route::purge_tool_cache))
        .routes(routes!(tools::route::purge_cache))
        .routes(routes!(calls::route::run_calls))
        .routes(routes!(mcp::post, mcp::get, mcp::delete))
        .routes(routes!(invocations::route::list_invocations))
        .routes(routes!(
            invocations::route::get_invocation,
            invocations::route::cancel_invocation
        ))
        .routes(routes!(invocations::questions::answer_question))
        .routes(routes!(invocations::results::get_result))
        .routes(routes!(approvals::route::list_approvals))
        .routes(routes!(approvals::route::approve_invocation))
        .routes(routes!(approvals::route::deny_invocation))
        .routes(routes!(usage::route::get_usage))
        .routes(routes!(event_feed::get_events))
        .routes(routes!(replicas::list_replicas))
        .routes(routes!(sources::list_sources))
        .routes(routes!(sources::list_source_changes))
        .routes(routes!(sources::restart_source))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .routes(routes!(metrics::get_metrics))
}
