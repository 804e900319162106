//! Authorizes the requests of HTTP tools, of the tools of OpenAPI documents, and to MCP servers
//! with a URL.
//!
//! - `config`: the manifest keys below `auth`;
//! - `token_endpoint`: requests an access token and reads the answer;
//! - `token_source`: keeps the token, renews it, and requests it once for all calls;
//! - `token_sources`: shares one token source among all entries with equal settings.

mod config;
mod token_endpoint;
mod token_source;
mod token_sources;

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Request, Response, StatusCode};

pub use self::config::AuthConfig;
use self::config::BasicConfig;
use self::token_source::TokenSource;
pub use self::token_sources::TokenSources;
use super::HttpClients;
use super::address_policy::AddressPolicy;
use super::client::HttpClient;
use crate::call::ToolError;
use crate::tools::ConfigFault;

/// How requests are authorized.
#[derive(Clone)]
pub(crate) enum RequestAuth {
    /// Always the same `authorization` header.
    Basic(HeaderValue),
    /// An access token.
    Token(Arc<TokenSource>),
}

impl RequestAuth {
    /// Prepares the authorization of requests. Token requests go where `policy` permits. Returns
    /// all faults, and `None` if one of them is an error. The paths of faults begin at `auth`.
    pub(crate) fn build(
        config: &AuthConfig,
        policy: AddressPolicy,
        clients: &HttpClients,
    ) -> (Option<Self>, Vec<ConfigFault>) {
        let faults = config.find_faults();
        if faults.iter().any(|fault| !fault.warning) {
            return (None, faults);
        }
        match config {
            AuthConfig {
                basic: Some(basic), ..
            } => (basic_header(basic).map(Self::Basic), faults),
            AuthConfig {
                oauth: Some(oauth), ..
            } => {
                let (source, more) = clients.token_sources().get(oauth, policy, clients);
                (source.map(Self::Token), [faults, more].concat())
            }
            AuthConfig {
                oauth: None,
                basic: None,
            } => (None, faults),
        }
    }

    /// Sends a request with its authorization. If the server refuses the access token, the request
    /// is sent once more, with a new token. That is safe for writes too: a server that answers 401
    /// has not applied the request (RFC 9110, section 15.5.2).
    pub(crate) async fn send(
        &self,
        client: &HttpClient,
        mut request: Request,
    ) -> Result<Response, ToolError> {
        let source = match self {
            Self::Basic(value) => {
                request.headers_mut().insert(AUTHORIZATION, value.clone());
                return client.send(request).await;
            }
            Self::Token(source) => source,
        };
        let token = source.get().await?;
        // `None` only for a body that is a stream, which no tool sends.
        let repetition = request.try_clone();
        request
            .headers_mut()
            .insert(AUTHORIZATION, token.header.clone());
        let response = client.send(request).await?;
        match repetition {
            Some(mut request) if response.status() == StatusCode::UNAUTHORIZED => {
                let Some(token) = source.replace(&token).await? else {
                    return Ok(response);
                };
                request
                    .headers_mut()
                    .insert(AUTHORIZATION, token.header.clone());
                client.send(request).await
            }
            Some(_) | None => Ok(response),
        }
    }
}

/// The header value of basic authentication (RFC 7617). `None` if it is too long for a header.
fn basic_header(BasicConfig { username, password }: &BasicConfig) -> Option<HeaderValue> {
    sensitive_header(&format!(
        "Basic {}",
        BASE64_STANDARD.encode(format!("{username}:{password}"))
    ))
}

/// A header value that is hidden in logs; `None` if no header can hold it.
fn sensitive_header(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text)
        .ok()
        .filter(|value| value.to_str().is_ok())?;
    value.set_sensitive(true);
    Some(value)
}
