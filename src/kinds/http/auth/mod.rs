//! Authorizes the requests of HTTP tools, of the tools of OpenAPI documents, and to MCP servers
//! with a URL.
//!
//! - `config`: the manifest keys below `auth`;
//! - `token_endpoint`: requests an access token and reads the answer;
//! - `token_source`: keeps the token, renews it, and requests it once for all calls. All entries with
//!   equal settings share one.

mod config;
mod token_endpoint;
mod token_source;

use std::sync::Arc;

use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Request, StatusCode};

pub use self::config::AuthConfig;
use self::config::{BasicConfig, OauthConfig};
use self::token_endpoint::TokenEndpoint;
use self::token_source::TokenSource;
pub use self::token_source::TokenSources;
use super::address_policy::AddressPolicy;
use super::client::{HttpClient, Response};
use super::clients::HttpClients;
use super::header_value::encode_credentials;
use crate::call::ToolError;
use crate::kinds::ConfigFault;

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
    /// warnings too. The paths of faults begin at `auth`.
    ///
    /// # Errors
    /// The faults with which no request can be authorized.
    pub(crate) fn build(
        config: &AuthConfig,
        policy: AddressPolicy,
        clients: &HttpClients,
    ) -> Result<(Self, Vec<ConfigFault>), Vec<ConfigFault>> {
        let fault = |path: &[&str], message: &str| Err(vec![ConfigFault::error(path, message)]);
        match (&config.oauth, &config.basic) {
            (Some(_), Some(_)) => fault(&["auth"], "oauth and basic exclude each other: keep one"),
            (None, None) => fault(
                &["auth"],
                "oauth or basic is missing, e.g. oauth: {token_url: …, client_id: …, client_secret: …}",
            ),
            (None, Some(basic)) if basic.username.contains(':') => fault(
                &["auth", "basic", "username"],
                "a user name cannot contain `:` (RFC 7617)",
            ),
            (None, Some(BasicConfig { username, password })) => {
                match encode_credentials(username, password) {
                    Some(header) => Ok((Self::Basic(header), Vec::new())),
                    None => fault(
                        &["auth", "basic"],
                        "no header field can hold this user name and password",
                    ),
                }
            }
            (Some(oauth), None) => {
                let (endpoint, policy, warnings) = build_endpoint(oauth, policy, clients)?;
                let source = clients.token_sources.get(endpoint, policy);
                Ok((Self::Token(source), warnings))
            }
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

/// The token endpoint of these settings, the policy of its client, and warnings.
///
/// # Errors
/// The fault with which no token can be requested.
fn build_endpoint(
    config: &OauthConfig,
    mut policy: AddressPolicy,
    clients: &HttpClients,
) -> Result<(TokenEndpoint, AddressPolicy, Vec<ConfigFault>), Vec<ConfigFault>> {
    let path = &["auth", "oauth", "token_url"];
    let error = |message: &str| vec![ConfigFault::error(path, message)];
    let url = config.checked_url()?;
    if url.scheme() == "http" {
        if !policy.allows_private() {
            let message = "https is needed, because the request carries the client's secret; http is only for private \
                           addresses, with `allow_private: true`";
            return Err(error(message));
        }
        policy.deny_global = true;
    }
    let client = clients.get(policy);
    let denied = client.check_url(&url).err();
    let warning = denied.map(|denied| ConfigFault::warning(path, denied.to_string()));
    let endpoint = TokenEndpoint {
        config: config.clone(),
        url,
        client,
    };
    Ok((endpoint, policy, warning.into_iter().collect()))
}
