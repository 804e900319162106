//! The fixed routes, with their documentation.

use axum::Router;
use axum::routing::MethodRouter;
use utoipa::OpenApi;
use utoipa_axum::{PathItemExt, router::OpenApiRouter, routes};

use super::api::{
    audit, calls, event_feed, health, invocations, metrics, replicas, sources, tools, usage,
};
use super::pages::docs;
use super::state::AppState;
use super::{approvals, mcp};

/// Gives every documented route to a macro.
macro_rules! with_handlers {
    ($use:ident) => {
        $use!(
            tools::list::list_tools,
            tools::list::list_toolsets,
            tools::route::get_tool,
            tools::registration::register_tool,
            tools::registration::remove_tool,
            tools::route::invoke_tool,
            tools::route::validate_arguments,
            tools::route::enable_tool,
            tools::route::disable_tool,
            tools::route::reset_usage,
            tools::route::purge_tool_cache,
            tools::route::purge_cache,
            calls::route::run_calls,
            mcp::post,
            mcp::get,
            mcp::delete,
            invocations::route::list_invocations,
            invocations::route::get_invocation,
            invocations::route::cancel_invocation,
            invocations::questions::answer_question,
            invocations::results::get_result,
            approvals::route::list_approvals,
            approvals::route::approve_invocation,
            approvals::route::deny_invocation,
            usage::route::get_usage,
            event_feed::get_events,
            audit::list_audit,
            replicas::list_replicas,
            sources::list_sources,
            sources::list_source_changes,
            sources::restart_source,
            health::livez,
            health::readyz,
            metrics::get_metrics,
        )
    };
}

macro_rules! route {
    ($($($part:ident)::+),+ $(,)?) => {
        Router::new()$(.route(
            &routes!(@path [path()] of $($part)::+),
            routes!(@path [methods()] of $($part)::+)
                .iter()
                .fold(MethodRouter::new(), |all, method| all.on(method.to_method_filter(), $($part)::+)),
        ))+
    };
}

macro_rules! describe {
    ($($($part:ident)::+),+ $(,)?) => {
        OpenApiRouter::<AppState>::with_openapi(docs::BaseDocument::openapi())
            $(.routes(routes!($($part)::+)))+
    };
}

/// Every documented route. It must not use what describes a route: then the linker leaves all of
/// that out of the program, a twentieth of it.
pub(super) fn api_router() -> Router<AppState> {
    with_handlers!(route)
}

/// The description of these routes.
pub(super) fn describe() -> utoipa::openapi::OpenApi {
    with_handlers!(describe).into_openapi()
}
