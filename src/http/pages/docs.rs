//! The OpenAPI document, and the entry of the console.

use axum::http::header::{ACCEPT, VARY};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Redirect, Response};
use axum::{Json, Router, routing::get};
use moka::future::Cache;
use serde_json::json;
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::{Modify, OpenApi};

use super::console;
use crate::call::json::hash_parts;
use crate::formats::Format;
use crate::http::edge::auth::OptionalAuth;
use crate::http::headers::etag::TaggedBody;
use crate::http::openapi::document::FixedRoutes;
use crate::http::openapi::documented::Duration;
use crate::http::openapi::responses;
use crate::http::problem::{ApiError, Problem};
use crate::http::state::AppState;

/// The base of the document, to which `api_router()` adds the routes.
#[derive(OpenApi)]
#[openapi(
    info(title = "Toolcrib", description = "Executes the tool calls of software agents: validated, limited, cached, \
        retried and recorded.", license(name = "Apache-2.0", identifier = "Apache-2.0")),
    tags(
        (name = "invoke", description = "Each tool with its own types."),
        (name = "tools", description = "List tools and run them."),
        (name = "mcp", description = "The same tools for MCP clients."),
        (name = "ledger", description = "The calls, their callers and their results."),
        (name = "operator", description = "For admins. Without callers in the manifest, every client is an admin."),
        (name = "health", description = "For probes."),
    ),
    components(schemas(crate::http::api::usage::buckets::BucketLength, crate::ledger::UsageBy, Problem, Format, Duration)),
    modifiers(&SharedParts),
)]
pub(crate) struct BaseDocument;

/// The two headers in which every route takes a caller's key, and the problems that routes refer to.
struct SharedParts;

impl Modify for SharedParts {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let bearer = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("A caller's key."))
            .build();
        let header = ApiKeyValue::with_description("x-api-key", "A caller's key.");
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
        components.add_security_scheme("header", SecurityScheme::ApiKey(ApiKey::Header(header)));
        components.responses.extend(responses::problem_components());
        let by = |scheme| SecurityRequirement::new(scheme, Vec::<String>::new());
        document.security = Some(vec![
            SecurityRequirement::default(),
            by("bearer"),
            by("header"),
        ]);
    }
}

/// `/`, `/openapi.json` and `/docs`, where the console shows the operations. `fixed_routes` makes
/// the document of the fixed routes.
pub(crate) fn routes(fixed_routes: fn() -> FixedRoutes) -> Router<AppState> {
    let documents = Documents::new(fixed_routes);
    let document = move |auth: OptionalAuth, headers: HeaderMap| async move {
        documents
            .document_for(auth)
            .await
            .map(|document| document.respond_to(&headers))
    };
    Router::new()
        .route("/", get(show_index))
        .route("/openapi.json", get(document))
        .route(
            "/docs",
            get(|headers: HeaderMap| async move { console::page(&headers) }),
        )
        .route("/docs/", get(|| async { Redirect::permanent("/docs") }))
}

/// `/`: a browser gets the console, another client gets a short list of routes.
async fn show_index(headers: HeaderMap) -> Response {
    let accepts_html = |value: &HeaderValue| {
        value
            .to_str()
            .is_ok_and(|value| value.contains("text/html"))
    };
    let mut response = match headers.get_all(ACCEPT).iter().any(accepts_html) {
        true => console::page(&headers),
        false => Json(json!({
            "name": env!("CARGO_PKG_NAME"),
            "version": env!("CARGO_PKG_VERSION"),
            "tools": "/tools",
            "calls": "/calls",
            "mcp": "/mcp",
            "openapi": "/openapi.json",
            "docs": "/docs",
        }))
        .into_response(),
    };
    response
        .headers_mut()
        .append(VARY, HeaderValue::from_static("accept"));
    response
}

/// Most bytes of cached documents. A document takes some 4 KB for each tool.
const MAX_CACHED_BYTES: u64 = 16 << 20;

/// The documents of `/openapi.json`. A document is made on the first request for it, which takes a
/// tenth of a second for a thousand tools. Callers with the same tools share it. The part for the
/// fixed routes is not kept, because it would take memory of an idle service.
#[derive(Clone)]
struct Documents {
    fixed_routes: fn() -> FixedRoutes,
    cache: Cache<[u8; 32], TaggedBody>,
}

impl Documents {
    fn new(fixed_routes: fn() -> FixedRoutes) -> Self {
        let size =
            |_: &[u8; 32], document: &TaggedBody| u32::try_from(document.len()).unwrap_or(u32::MAX);
        let cache = Cache::builder()
            .max_capacity(MAX_CACHED_BYTES)
            .weigher(size)
            .build();
        Self {
            fixed_routes,
            cache,
        }
    }

    /// The document: the fixed routes for every client, and with a valid key also the caller's
    /// enabled tools.
    async fn document_for(&self, OptionalAuth(auth): OptionalAuth) -> Result<TaggedBody, ApiError> {
        let needs_key = auth
            .as_ref()
            .is_none_or(|auth| !auth.catalog.callers().is_empty());
        let mut tools = auth
            .map(|auth| auth.catalog.tools_for(&auth.caller))
            .unwrap_or_default();
        tools.retain(|entry| entry.is_available());
        // `shown_hash` covers all parts of a tool that the document depends on, except these three.
        let shown = tools.iter().map(|entry| {
            (
                &entry.shown_hash,
                &entry.definition.tags,
                &entry.definition.examples,
                entry.policy.effect,
            )
        });
        let shown = serde_json::to_vec(&shown.collect::<Vec<_>>()).unwrap_or_default();
        let key = hash_parts([shown.as_slice(), &[u8::from(needs_key)]]);
        let fixed_routes = self.fixed_routes;
        let make = move || {
            let document = fixed_routes().with_tools(
                tools
                    .iter()
                    .map(|entry| (&entry.definition, entry.policy.effect)),
            );
            TaggedBody::new(&if needs_key {
                document
            } else {
                FixedRoutes::without_keys(document)
            })
        };
        let made = async {
            tokio::task::spawn_blocking(make)
                .await
                .unwrap_or_else(|error| {
                    tracing::error!(%error, "the OpenAPI document cannot be made");
                    Err(ApiError::Internal)
                })
        };
        let document = self.cache.try_get_with(key, made).await;
        document.map_err(|_| ApiError::Internal)
    }
}
