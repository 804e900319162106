//! The fixed routes, with their documentation.

use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::state::AppState;
use super::{
    approvals, calls, docs, event_feed, health, invocations, mcp, metrics, questions, registration,
    replicas, results, sources, tools, usage,
};

/// Every documented route.
pub(super) fn api_router() -> OpenApiRouter<AppState> {
    OpenApiRouter::with_openapi(docs::BaseDocument::openapi())
        .routes(routes!(tools::list_tools))
        .routes(routes!(tools::get_tool))
        .routes(routes!(registration::register_tool))
        .routes(routes!(registration::remove_tool))
        .routes(routes!(tools::invoke_tool))
        .routes(routes!(tools::validate_arguments))
        .routes(routes!(tools::enable_tool))
        .routes(routes!(tools::disable_tool))
        .routes(routes!(tools::reset_usage))
        .routes(routes!(tools::purge_tool_cache))
        .routes(routes!(tools::purge_cache))
        .routes(routes!(calls::route::run_calls))
        .routes(routes!(mcp::post, mcp::get, mcp::delete))
        .routes(routes!(invocations::list_invocations))
        .routes(routes!(
            invocations::get_invocation,
            invocations::cancel_invocation
        ))
        .routes(routes!(questions::answer_question))
        .routes(routes!(results::get_result))
        .routes(routes!(approvals::list_approvals))
        .routes(routes!(approvals::approve_invocation))
        .routes(routes!(approvals::deny_invocation))
        .routes(routes!(usage::get_usage))
        .routes(routes!(event_feed::get_events))
        .routes(routes!(replicas::list_replicas))
        .routes(routes!(sources::list_sources))
        .routes(routes!(sources::list_source_changes))
        .routes(routes!(sources::restart_source))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .routes(routes!(metrics::get_metrics))
}
