//! The OpenAPI document, and a page to browse it that needs no network.

use std::sync::Arc;

use axum::extract::Path;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use moka::future::Cache;
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::{Modify, OpenApi};
use utoipa_swagger_ui::Config;

use super::auth::OptionalAuth;
use super::documented::Duration;
use super::etag::TaggedBody;
use super::openapi::FixedRoutes;
use super::problem::{ApiError, Problem};
use super::responses;
use super::state::AppState;
use crate::call::json::hash_parts;
use crate::formats::Format;

/// The base of the document, to which `api_router()` adds the routes.
#[derive(OpenApi)]
#[openapi(
    info(title = "Toolcrib", description = "Executes the tool calls of software agents: validated, limited, cached, \
        retried and recorded.", license(name = "Apache-2.0", identifier = "Apache-2.0")),
    tags(
        (name = "tools", description = "List tools and run them."),
        (name = "invoke", description = "Each tool with its own types."),
        (name = "mcp", description = "The same tools for MCP clients."),
        (name = "ledger", description = "The calls, their callers and their results."),
        (name = "operator", description = "For admins. Without callers in the manifest, every client is an admin."),
        (name = "health", description = "For probes."),
    ),
    components(schemas(Problem, Format, Duration)),
    modifiers(&CallerKeySchemes, &ProblemResponses),
)]
pub(super) struct BaseDocument;

/// Declares the two headers in which every route takes a caller's key.
struct CallerKeySchemes;

impl Modify for CallerKeySchemes {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("A caller's key.")).build();
        let header = ApiKeyValue::with_description("x-api-key", "A caller's key.");
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
        components.add_security_scheme("header", SecurityScheme::ApiKey(ApiKey::Header(header)));
        let by = |scheme| SecurityRequirement::new(scheme, Vec::<String>::new());
        document.security = Some(vec![SecurityRequirement::default(), by("bearer"), by("header")]);
    }
}

/// Adds the problems that routes refer to.
struct ProblemResponses;

impl Modify for ProblemResponses {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        document.components.get_or_insert_default().responses.extend(responses::problem_components());
    }
}

/// The page may load files of this service and send requests to it, and nothing else.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                      connect-src 'self'; frame-ancestors 'none'; base-uri 'self'";

/// `/openapi.json`, `/docs` and the files of the page.
pub(super) fn routes(document: &utoipa::openapi::OpenApi) -> Router<AppState> {
    let documents = Documents::new(document);
    let config = Arc::new(Config::from("/openapi.json"));
    let index = config.clone();
    let document = move |auth: OptionalAuth, headers: HeaderMap| async move {
        documents.document_for(auth).await.map(|document| document.respond_to(&headers))
    };
    Router::new()
        .route("/openapi.json", get(document))
        .route("/docs", get(move || async move { serve_file("", index) }))
        .route("/docs/", get(|| async { axum::response::Redirect::permanent("/docs") }))
        .route("/docs/{*file}", get(move |Path(name): Path<String>| async move { serve_file(&name, config) }))
}

/// Most bytes of cached documents. A document takes some 4 KB for each tool.
const MAX_CACHED_BYTES: u64 = 16 << 20;

/// The documents of `/openapi.json`. A document is made on the first request for it, which takes a tenth of a second
/// for a thousand tools. Callers with the same tools share it.
#[derive(Clone)]
struct Documents {
    fixed: Arc<FixedRoutes>,
    cache: Cache<[u8; 32], TaggedBody>,
}

impl Documents {
    fn new(document: &utoipa::openapi::OpenApi) -> Self {
        let size = |_: &[u8; 32], document: &TaggedBody| u32::try_from(document.len()).unwrap_or(u32::MAX);
        let cache = Cache::builder().max_capacity(MAX_CACHED_BYTES).weigher(size).build();
        Self { fixed: Arc::new(FixedRoutes::new(document)), cache }
    }

    /// The document: the fixed routes for every client, and with a valid key also the caller's enabled tools.
    async fn document_for(&self, OptionalAuth(auth): OptionalAuth) -> Result<TaggedBody, ApiError> {
        let mut tools = auth.map(|auth| auth.catalog.tools_for(&auth.caller)).unwrap_or_default();
        tools.retain(|entry| entry.is_available());
        // `shown` has all parts of a tool that the document shows, except its tags.
        let shown = tools.iter().map(|entry| (&entry.shown_hash, &entry.definition.tags));
        let key = hash_parts([serde_json::to_vec(&shown.collect::<Vec<_>>()).unwrap_or_default().as_slice()]);
        let fixed = self.fixed.clone();
        let make = move || TaggedBody::new(&fixed.with_tools(tools.iter().map(|entry| &entry.definition)));
        let document = self.cache.try_get_with(key, tokio::task::spawn_blocking(make)).await;
        document.map_err(|error| {
            tracing::error!(%error, "the OpenAPI document cannot be made");
            ApiError::Internal
        })
    }
}

fn serve_file(name: &str, config: Arc<Config<'static>>) -> Response {
    match utoipa_swagger_ui::serve(name, config) {
        Ok(Some(file)) => {
            let mut bytes = file.bytes.into_owned();
            if name.is_empty() {
                // The page refers to its files relative to a folder, but it is served as `/docs`, without a slash at
                // the end.
                let page = String::from_utf8_lossy(&bytes).replace("\"./", "\"/docs/");
                bytes = page.replace("\"index.css", "\"/docs/index.css").into_bytes();
            }
            ([(CONTENT_TYPE, file.content_type), (CONTENT_SECURITY_POLICY, CONTENT_POLICY.into())], bytes)
                .into_response()
        }
        _ => ApiError::NotFound("there is no such page".into()).into_response(),
    }
}
