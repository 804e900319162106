//! The OpenAPI document and a page to browse it, which works without a network.

use std::sync::Arc;

use axum::extract::Path;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing::get};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_swagger_ui::Config;

use super::problem::ApiError;
use super::state::AppState;

/// The document's frame; the routes add themselves.
#[derive(OpenApi)]
#[openapi(
    info(title = "Toolcrib", description = "Executes the tool calls of software agents: validated, limited, cached, \
        retried and recorded.", license(name = "Apache-2.0", identifier = "Apache-2.0")),
    tags(
        (name = "tools", description = "List tools and run them."),
        (name = "ledger", description = "What was called, by whom, with what result."),
        (name = "operator", description = "For admins; without callers in the manifest everybody is one."),
        (name = "health", description = "For probes."),
    ),
    modifiers(&BearerKey),
)]
pub(super) struct Frame;

/// Every route takes a caller's key once there are callers.
struct BearerKey;

impl Modify for BearerKey {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("A caller's key.")).build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("key", SecurityScheme::Http(scheme));
        document.security = Some(vec![
            utoipa::openapi::security::SecurityRequirement::default(),
            utoipa::openapi::security::SecurityRequirement::new("key", Vec::<String>::new()),
        ]);
    }
}

/// The page may load what this service serves, and talk to it; nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                      connect-src 'self'; frame-ancestors 'none'; base-uri 'self'";

/// `/openapi.json`, `/docs` and the files of the page.
pub(super) fn routes(document: utoipa::openapi::OpenApi) -> Router<AppState> {
    let document = Arc::new(document);
    let config = Arc::new(Config::from("/openapi.json"));
    let index = config.clone();
    Router::new()
        .route("/openapi.json", get(move || async move { Json(&*document).into_response() }))
        .route("/docs", get(move || async move { file("", index) }))
        .route("/docs/", get(|| async { axum::response::Redirect::permanent("/docs") }))
        .route("/docs/{*file}", get(move |Path(name): Path<String>| async move { file(&name, config) }))
}

fn file(name: &str, config: Arc<Config<'static>>) -> Response {
    match utoipa_swagger_ui::serve(name, config) {
        Ok(Some(file)) => {
            let mut bytes = file.bytes.into_owned();
            if name.is_empty() {
                // The page names its files relative to a folder, and is served as `/docs` itself.
                let page = String::from_utf8_lossy(&bytes).replace("\"./", "\"/docs/");
                bytes = page.replace("\"index.css", "\"/docs/index.css").into_bytes();
            }
            ([(CONTENT_TYPE, file.content_type), (CONTENT_SECURITY_POLICY, POLICY.into())], bytes).into_response()
        }
        _ => ApiError::NotFound("there is no such page".into()).into_response(),
    }
}
