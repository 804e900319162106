//! Requests an access token, and reads the answer (RFC 6749, sections 4.4, 5 and 6).

use std::time::Duration;

use async_trait::async_trait;
use bytesize::ByteSize;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Request, StatusCode};
use serde_json::Value;
use url::{Url, form_urlencoded};

use super::super::client::{HttpClient, Response, host_and_port};
use super::super::header_value::{encode_credentials, parse_header_value};
use super::super::received::read_whole_text;
use super::super::response::parse_retry_after;
use super::config::{ClientAuth, OauthConfig};
use crate::call::{JsonObject, ToolError};
use crate::text::sanitize::clean_text;

/// The longest answer. Tokens have a few kilobytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// The lifetime of a token whose answer has none. A token that ends earlier is replaced when a
/// server refuses it.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(600);
/// A longer lifetime counts as this one.
const MAX_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// A token endpoint, and the client that it knows.
pub(super) struct TokenEndpoint {
    pub(super) config: OauthConfig,
    pub(super) url: Url,
    pub(super) client: HttpClient,
}

/// The answer of a token endpoint.
pub(super) struct Grant {
    /// `Bearer` and the token.
    pub(super) header: HeaderValue,
    pub(super) access_token: String,
    pub(super) lifetime: Duration,
    /// The refresh token that replaces the one of the request.
    pub(super) refresh_token: Option<String>,
}

/// Where tokens come from.
#[async_trait]
pub(super) trait RequestToken: Send + Sync + 'static {
    /// Requests a token: with the refresh token if there is one, otherwise with client credentials.
    /// The call that needs the token has not reached its server, whatever happens here.
    async fn request_token(&self, refresh_token: Option<&str>) -> Result<Grant, ToolError>;
}

#[async_trait]
impl RequestToken for TokenEndpoint {
    async fn request_token(&self, refresh_token: Option<&str>) -> Result<Grant, ToolError> {
        let granted = match self.client.send(self.build_request(refresh_token)?).await {
            Ok(response) => self.read_response(response, refresh_token.is_some()).await,
            Err(error) => Err(error),
        };
        granted.map_err(|error| {
            error
                .map_upstream_message(|message| format!("no access token: {message}"))
                .not_delivered()
        })
    }
}

impl TokenEndpoint {
    fn build_request(&self, refresh_token: Option<&str>) -> Result<Request, ToolError> {
        let config = &self.config;
        let client_id = &config.client_id;
        let mut request = Request::new(Method::POST, self.url.clone());
        let mut form = form_urlencoded::Serializer::new(String::new());
        match refresh_token {
            Some(token) => form
                .append_pair("grant_type", "refresh_token")
                .append_pair("refresh_token", token),
            None => form.append_pair("grant_type", "client_credentials"),
        };
        if !config.scopes.is_empty() {
            form.append_pair("scope", &config.scopes.join(" "));
        }
        if let Some(audience) = &config.audience {
            form.append_pair("audience", audience);
        }
        form.extend_pairs(&config.parameters);
        match (config.client_auth, &config.client_secret) {
            (ClientAuth::ClientSecretBasic, Some(secret)) => {
                // Both are encoded first, so that a `:` in the id is no separator.
                let encoded = |text: &str| {
                    form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>()
                };
                let value = encode_credentials(&encoded(client_id), &encoded(secret));
                let value = value.ok_or_else(|| {
                    let message = "no access token: no header field can hold the client's secret";
                    ToolError::upstream_permanent(message)
                })?;
                request.headers_mut().insert(AUTHORIZATION, value);
            }
            (ClientAuth::ClientSecretPost, Some(secret)) => {
                form.append_pair("client_id", client_id)
                    .append_pair("client_secret", secret);
            }
            // A client without a secret is known by its id alone.
            (_, None) => drop(form.append_pair("client_id", client_id)),
        }
        let fields = request.headers_mut();
        fields.insert(ACCEPT, HeaderValue::from_static("application/json"));
        fields.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded"),
        );
        *request.body_mut() = Some(form.finish().into());
        Ok(request)
    }

    async fn read_response(
        &self,
        response: Response,
        is_refresh: bool,
    ) -> Result<Grant, ToolError> {
        let host = host_and_port(&self.url);
        let (status, retry_after) = (response.status(), parse_retry_after(&response));
        let bytes = read_whole_text(response, MAX_ANSWER_BYTES).await?;
        let bytes = bytes.ok_or_else(|| {
            let cap = ByteSize(MAX_ANSWER_BYTES as u64);
            ToolError::upstream_permanent(format!("`{host}` answered more than {cap}"))
        })?;
        let answer: Option<JsonObject> = serde_json::from_slice(&bytes).ok();
        // Some servers answer errors with status 200.
        match answer {
            Some(answer) if status.is_success() && !answer.contains_key("error") => {
                read_grant(&answer, &host)
            }
            answer => Err(read_refusal(
                status,
                &answer.unwrap_or_default(),
                &host,
                is_refresh,
                retry_after,
            )),
        }
    }
}

fn text_of<'a>(answer: &'a JsonObject, key: &str) -> Option<&'a str> {
    answer
        .get(key)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
}

/// Reads a successful answer (section 5.1).
fn read_grant(answer: &JsonObject, host: &str) -> Result<Grant, ToolError> {
    let fail = |message: String| Err(ToolError::upstream_permanent(message));
    let Some(token) = text_of(answer, "access_token") else {
        return fail(format!("`{host}` answered without an access_token"));
    };
    if let Some(other) =
        text_of(answer, "token_type").filter(|word| !word.eq_ignore_ascii_case("bearer"))
    {
        return fail(format!(
            "`{host}` issues tokens of type {}, and only bearer tokens can be sent",
            quoted(other)
        ));
    }
    let Some(header) = parse_header_value(&format!("Bearer {token}")) else {
        return fail(format!(
            "`{host}` answered a token with characters that no header can hold"
        ));
    };
    let lifetime = match answer.get("expires_in") {
        Some(Value::Number(seconds)) => seconds.as_f64(),
        Some(Value::String(seconds)) => seconds.trim().parse().ok(),
        _ => None,
    };
    let lifetime = lifetime.filter(|seconds| !seconds.is_nan());
    let lifetime = lifetime.map(|seconds| seconds.clamp(0.0, MAX_LIFETIME.as_secs_f64()));
    Ok(Grant {
        header,
        access_token: token.to_owned(),
        lifetime: lifetime.map_or(DEFAULT_LIFETIME, Duration::from_secs_f64),
        refresh_token: text_of(answer, "refresh_token").map(str::to_owned),
    })
}

/// Reads any other answer (section 5.2). Of its body, only the error's code and description are
/// repeated.
fn read_refusal(
    status: StatusCode,
    answer: &JsonObject,
    host: &str,
    is_refresh: bool,
    retry_after: Option<Duration>,
) -> ToolError {
    let code = text_of(answer, "error");
    let mut message = match (code, text_of(answer, "error_description")) {
        (Some(code), Some(description)) => {
            format!(
                "`{host}` refused the request: {}: {}",
                quoted(code),
                quoted(description)
            )
        }
        (Some(code), None) => format!("`{host}` refused the request: {}", quoted(code)),
        (None, _) if status.is_redirection() => {
            format!(
                "`{host}` answered HTTP {status}; redirects are not followed: write the URL that answers itself"
            )
        }
        (None, _) => format!("`{host}` answered HTTP {status}"),
    };
    if code == Some("invalid_grant") && is_refresh {
        message
            .push_str("; the refresh token is not valid any more: put a new one into the manifest");
    }
    let is_temporary = status.is_server_error()
        || status == StatusCode::TOO_MANY_REQUESTS
        || matches!(code, Some("temporarily_unavailable" | "server_error"));
    let error = match status {
        _ if !is_temporary => return ToolError::upstream_permanent(message),
        StatusCode::TOO_MANY_REQUESTS => ToolError::upstream_busy(message),
        _ => ToolError::upstream(message),
    };
    error.with_retry_after(retry_after).not_delivered()
}

/// A text of the server's, on one line.
fn quoted(text: &str) -> String {
    clean_text(text)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use serde_json::json;

    use super::super::super::address_policy::AddressPolicy;
    use super::super::super::tests::{Reply, start_server};
    use super::*;
    use crate::call::UpstreamFailure;
    use crate::kinds::HttpClients;

    /// Shows no token.
    impl std::fmt::Debug for Grant {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Grant")
                .field("lifetime", &self.lifetime)
                .finish_non_exhaustive()
        }
    }

    fn endpoint(host: &str, more: Value) -> TokenEndpoint {
        let mut config = json!({"token_url": format!("http://{host}/token"), "client_id": "a:b", "client_secret": "s é"});
        config
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let config: OauthConfig = serde_json::from_value(config).unwrap();
        let client = HttpClients::default().get(AddressPolicy::allow_private());
        TokenEndpoint {
            url: config.token_url.parse().unwrap(),
            config,
            client,
        }
    }

    async fn answer(
        status: &str,
        body: &str,
        refresh_token: Option<&str>,
    ) -> Result<Grant, ToolError> {
        let reply = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let server = start_server(Reply::Bytes(reply.into_bytes())).await;
        let granted = endpoint(&server.host, json!({}))
            .request_token(refresh_token)
            .await;
        granted.map_err(|error| {
            let is_delivered = matches!(
                error,
                ToolError::Upstream(UpstreamFailure {
                    not_delivered: false,
                    ..
                })
            );
            assert!(!is_delivered, "the call has not reached its server");
            error.map_upstream_message(|message| message.replace(&server.host, "auth"))
        })
    }

    #[tokio::test]
    async fn requests_follow_the_standard() {
        let basic = format!(
            "authorization: basic {}",
            BASE64_STANDARD.encode("a%3Ab:s+%C3%A9").to_lowercase()
        );
        for (more, refresh_token, header, body) in [
            (
                json!({}),
                None,
                Some(basic.as_str()),
                "grant_type=client_credentials",
            ),
            (
                json!({"scopes": ["a", "b"], "audience": "https://api", "parameters": {"resource": "r"}}),
                None,
                Some(&basic),
                "grant_type=client_credentials&scope=a+b&audience=https%3A%2F%2Fapi&resource=r",
            ),
            (
                json!({"client_auth": "client_secret_post"}),
                Some("x y"),
                None,
                "grant_type=refresh_token&refresh_token=x+y&client_id=a%3Ab&client_secret=s+%C3%A9",
            ),
            (
                json!({"client_secret": null}),
                Some("x"),
                None,
                "grant_type=refresh_token&refresh_token=x&client_id=a%3Ab",
            ),
        ] {
            let mut server = start_server(Reply::Bytes(
                b"HTTP/1.1 500 x\r\ncontent-length: 0\r\n\r\n".to_vec(),
            ))
            .await;
            let _ = endpoint(&server.host, more)
                .request_token(refresh_token)
                .await;
            let request = server.requests.recv().await.unwrap();
            let (head, sent) = request.split_once("\r\n\r\n").unwrap();
            let head = head.to_lowercase();
            assert!(head.starts_with("post /token "), "{head}");
            assert!(
                head.contains("content-type: application/x-www-form-urlencoded"),
                "{head}"
            );
            assert_eq!(
                head.lines().find(|line| line.starts_with("authorization")),
                header
            );
            assert_eq!(sent, body);
        }
    }

    #[tokio::test]
    async fn answers_give_token_and_lifetime() {
        for (body, seconds, refresh_token) in [
            (
                r#"{"access_token": "t", "token_type": "Bearer", "expires_in": 3600}"#,
                3600.0,
                None,
            ),
            (
                r#"{"access_token": "t", "token_type": "bearer", "expires_in": "60", "refresh_token": "r"}"#,
                60.0,
                Some("r"),
            ),
            (r#"{"access_token": "t"}"#, 600.0, None),
            (r#"{"access_token": "t", "expires_in": -5}"#, 0.0, None),
            (
                r#"{"access_token": "t", "expires_in": 1e300}"#,
                MAX_LIFETIME.as_secs_f64(),
                None,
            ),
            (
                r#"{"access_token": "t", "expires_in": null, "refresh_token": ""}"#,
                600.0,
                None,
            ),
        ] {
            let grant = answer("200 OK", body, None).await.unwrap();
            assert_eq!(
                (grant.access_token.as_str(), grant.header.to_str().unwrap()),
                ("t", "Bearer t")
            );
            assert_eq!(
                (grant.lifetime.as_secs_f64(), grant.refresh_token.as_deref()),
                (seconds, refresh_token),
                "{body}"
            );
            assert!(!format!("{grant:?}").contains("access_token"));
        }
    }

    #[tokio::test]
    async fn refusals_state_the_reason() {
        let text = |status: &'static str, body: &'static str| async move {
            let error = answer(status, body, Some("r")).await.unwrap_err();
            let ToolError::Upstream(UpstreamFailure {
                message, retryable, ..
            }) = error
            else {
                panic!("{error:?}")
            };
            (message, retryable)
        };
        for (status, body, expected, is_retryable) in [
            (
                "401 Unauthorized",
                r#"{"error": "invalid_client", "error_description": "No such\nclient.", "error_uri": "https://x"}"#,
                "no access token: `auth` refused the request: invalid_client: No such client.",
                false,
            ),
            (
                "400 Bad Request",
                r#"{"error": "invalid_grant"}"#,
                "no access token: `auth` refused the request: invalid_grant; the refresh token is not valid any more: put a new one into the manifest",
                false,
            ),
            (
                "200 OK",
                r#"{"error": "bad_verification_code"}"#,
                "no access token: `auth` refused the request: bad_verification_code",
                false,
            ),
            (
                "200 OK",
                "<html>",
                "no access token: `auth` answered HTTP 200 OK",
                false,
            ),
            (
                "200 OK",
                "{}",
                "no access token: `auth` answered without an access_token",
                false,
            ),
            (
                "200 OK",
                r#"{"access_token": "t", "token_type": "mac"}"#,
                "no access token: `auth` issues tokens of type mac, and only bearer tokens can be sent",
                false,
            ),
            (
                "200 OK",
                r#"{"access_token": "a\nb"}"#,
                "no access token: `auth` answered a token with characters that no header can hold",
                false,
            ),
            (
                "503 Service Unavailable",
                "secret words",
                "no access token: `auth` answered HTTP 503 Service Unavailable",
                true,
            ),
            (
                "429 Too Many Requests",
                "{}",
                "no access token: `auth` answered HTTP 429 Too Many Requests",
                true,
            ),
            (
                "400 Bad Request",
                r#"{"error": "temporarily_unavailable"}"#,
                "no access token: `auth` refused the request: temporarily_unavailable",
                true,
            ),
            (
                "302 Found",
                "",
                "no access token: `auth` answered HTTP 302 Found; redirects are not followed: write the URL that answers itself",
                false,
            ),
        ] {
            assert_eq!(
                text(status, body).await,
                (expected.to_owned(), is_retryable),
                "{body}"
            );
        }
    }

    #[tokio::test]
    async fn long_answers_are_refused() {
        let server = start_server(Reply::Endless("HTTP/1.1 200 OK\r\n\r\n")).await;
        let error = endpoint(&server.host, json!({}))
            .request_token(None)
            .await
            .unwrap_err();
        assert!(
            error.to_string().ends_with("answered more than 64.0 KiB"),
            "{error}"
        );
    }
}
