//! The manifest keys below `auth`.

use std::collections::BTreeMap;

use serde::Deserialize;
use url::Url;

use crate::kinds::ConfigFault;

/// `auth:`: how requests are authorized, if `headers` is not enough. Either `oauth` or `basic`.
// `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq, Hash, Deserialize, schemars::JsonSchema, derive_more::Debug)]
#[serde(deny_unknown_fields)]
#[debug("AuthConfig {{ .. }}")]
pub struct AuthConfig {
    /// Access tokens of OAuth 2.0: client credentials (RFC 6749, section 4.4), or a refresh token
    /// (section 6). A token is requested once for all calls, and renewed before it ends.
    #[schemars(extend("examples" = [serde_json::json!({"token_url": "https://auth.example.com/oauth/token", "client_id": "orders-agent", "client_secret": "${env:CLIENT_SECRET}"})]))]
    pub oauth: Option<OauthConfig>,
    /// User name and password (RFC 7617).
    #[schemars(extend("examples" = [serde_json::json!({"username": "orders-agent", "password": "${env:API_PASSWORD}"})]))]
    pub basic: Option<BasicConfig>,
}

/// `auth.oauth:`: where access tokens come from.
#[derive(Clone, PartialEq, Eq, Hash, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OauthConfig {
    /// The token endpoint. https, or http at a private address.
    #[schemars(extend("examples" = ["https://auth.example.com/oauth/token"]))]
    pub token_url: String,
    /// The client's id.
    #[schemars(extend("examples" = ["orders-agent"]))]
    pub client_id: String,
    /// The client's secret. Only a client with a `refresh_token` may have none.
    #[schemars(extend("examples" = ["${env:CLIENT_SECRET}"]))]
    pub client_secret: Option<String>,
    /// How the token request carries id and secret: in the `authorization` header, or in the body.
    #[serde(default)]
    #[schemars(extend("examples" = ["client_secret_post"]))]
    pub client_auth: ClientAuth,
    /// The scopes to request. Without it, the server decides.
    #[serde(default)]
    #[schemars(extend("examples" = [["orders:read"]]))]
    pub scopes: Vec<String>,
    /// The API that the token is for, if the server asks for an `audience`.
    #[schemars(extend("examples" = ["https://api.example.com"]))]
    pub audience: Option<String>,
    /// Uses this refresh token in place of client credentials. A refresh token that the server
    /// sends later replaces it until the service ends.
    #[schemars(extend("examples" = ["${env:REFRESH_TOKEN}"]))]
    pub refresh_token: Option<String>,
    /// Further form fields of the token request.
    #[serde(default)]
    #[schemars(extend("examples" = [serde_json::json!({"resource": "https://api.example.com"})]))]
    pub parameters: BTreeMap<String, String>,
}

/// How a token request carries the client's id and secret (RFC 6749, section 2.3.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuth {
    /// In the `authorization` header.
    #[default]
    ClientSecretBasic,
    /// In the body.
    ClientSecretPost,
}

/// `auth.basic:`: user name and password.
#[derive(Clone, PartialEq, Eq, Hash, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BasicConfig {
    /// The user name.
    #[schemars(extend("examples" = ["orders-agent"]))]
    pub username: String,
    /// The password.
    #[schemars(extend("examples" = ["${env:API_PASSWORD}"]))]
    pub password: String,
}

impl OauthConfig {
    /// The URL of the token endpoint.
    ///
    /// # Errors
    /// The faults that show without the network. Their paths begin at `auth`.
    pub(super) fn checked_url(&self) -> Result<Url, Vec<ConfigFault>> {
        let mut faults = Vec::new();
        let mut error = |key: &str, message: &str| {
            faults.push(ConfigFault::error(&["auth", "oauth", key], message));
        };
        let url = Url::parse(&self.token_url);
        match &url {
            Ok(url) if !matches!(url.scheme(), "http" | "https") => {
                error("token_url", "a URL begins with https://");
            }
            Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                error(
                    "token_url",
                    "a user and password in the URL are not allowed: write client_id and client_secret",
                );
            }
            Ok(url) if url.fragment().is_some() => {
                error("token_url", "the part after # is never sent: leave it out");
            }
            Ok(_) => {}
            Err(_) => error(
                "token_url",
                "a URL such as https://auth.example.com/oauth/token is expected here",
            ),
        }
        if self.client_id.is_empty() {
            error("client_id", "the client's id must not be empty");
        }
        match (&self.client_secret, &self.refresh_token) {
            (None, None) => {
                error(
                    "client_secret",
                    "client_secret is missing: only a client with a refresh_token may have none",
                );
            }
            (Some(secret), _) if secret.is_empty() => {
                error("client_secret", "the secret must not be empty");
            }
            (_, Some(token)) if token.is_empty() => {
                error("refresh_token", "the refresh token must not be empty");
            }
            _ => {}
        }
        if self
            .scopes
            .iter()
            .any(|scope| scope.is_empty() || scope.contains(char::is_whitespace))
        {
            error("scopes", "each item is one scope, without white space");
        }
        for name in self.parameters.keys() {
            // What the other keys set.
            let key = match name.as_str() {
                "scope" => "`scopes`",
                "grant_type" => "`refresh_token` or none",
                "client_assertion" => "client_secret; signed assertions are not supported",
                own @ ("client_id" | "client_secret" | "refresh_token" | "audience") => own,
                _ => continue,
            };
            error(
                "parameters",
                &format!("`{name}` has a key of its own: write {key}"),
            );
        }
        match url {
            Ok(url) if faults.is_empty() => Ok(url),
            _ => Err(faults),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn faults_of_settings_name_their_keys() {
        for (changed, keys) in [
            (json!({}), &[][..]),
            (
                json!({"token_url": "ftp://auth.example.com/"}),
                &["token_url"],
            ),
            (
                json!({"token_url": "https://me@auth.example.com/"}),
                &["token_url"],
            ),
            (
                json!({"token_url": "https://:pw@auth.example.com/"}),
                &["token_url"],
            ),
            (
                json!({"token_url": "https://auth.example.com/#a"}),
                &["token_url"],
            ),
            (json!({"token_url": "auth"}), &["token_url"]),
            (json!({"client_id": ""}), &["client_id"]),
            (json!({"client_secret": null}), &["client_secret"]),
            (json!({"client_secret": null, "refresh_token": "r"}), &[]),
            (json!({"client_secret": ""}), &["client_secret"]),
            (json!({"refresh_token": ""}), &["refresh_token"]),
            (json!({"scopes": ["a", ""]}), &["scopes"]),
            (json!({"scopes": ["a b"]}), &["scopes"]),
            (json!({"parameters": {"scope": "a"}}), &["parameters"]),
            (
                json!({"token_url": "x", "client_id": ""}),
                &["token_url", "client_id"],
            ),
        ] {
            let mut settings: Value = json!({
                "token_url": "https://auth.example.com/token", "client_id": "c", "client_secret": "s"
            });
            for (key, value) in changed.as_object().unwrap() {
                settings[key] = value.clone();
            }
            let config: OauthConfig = serde_json::from_value(settings).unwrap();
            let faults = config.checked_url().err().unwrap_or_default();
            let found: Vec<String> = faults.iter().map(|fault| fault.path.join(".")).collect();
            let expected: Vec<String> =
                keys.iter().map(|key| format!("auth.oauth.{key}")).collect();
            assert_eq!(found, expected, "{changed}");
        }
    }
}
