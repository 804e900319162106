//! Requests to a running server.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{RequestBuilder, StatusCode};
use rustls::crypto::ring;
use serde::de::IgnoredAny;
use serde_json::Value;
use url::form_urlencoded;

use super::Failure;
use crate::call::IdempotencyKey;
use crate::manifest::DEFAULT_LISTEN;

/// A running server and the key to it.
#[derive(clap::Args)]
pub(super) struct ServerArgs {
    /// A running server, e.g. http://127.0.0.1:7411.
    #[arg(long, env = "TOOLCRIB_SERVER")]
    pub(super) server: Option<String>,
    /// The caller's key for it.
    #[arg(long, env = "TOOLCRIB_KEY", hide_env_values = true)]
    pub(super) key: Option<String>,
}

fn build_client(timeout: Option<Duration>) -> Result<reqwest::Client, Failure> {
    // It fails only if a provider is installed already.
    let _ = ring::default_provider().install_default();
    let builder = || {
        let builder = reqwest::Client::builder().no_proxy();
        match timeout {
            Some(timeout) => builder.timeout(timeout),
            None => builder,
        }
    };
    // An image without CA certificates can still use plain HTTP.
    let built = builder().build().or_else(|_| builder().tls_certs_only([]).build());
    built.map_err(|error| Failure::Failed(format!("toolcrib: {error}")))
}

/// Reads a resource of a server, whatever the status.
pub(super) async fn get_json(args: &ServerArgs, server: &str, path: &str) -> Result<(StatusCode, Value), Failure> {
    send_request(args, server, build_client(None)?.get(join_url(server, path))).await
}

/// Calls a tool on a server, with an idempotency key if there is one.
pub(super) async fn invoke_tool(
    args: &ServerArgs,
    server: &str,
    path: &str,
    body: &Value,
    key: Option<&IdempotencyKey>,
) -> Result<(StatusCode, Value), Failure> {
    send_request(args, server, with_idempotency_key(build_client(None)?.post(join_url(server, path)).json(body), key))
        .await
}

/// Lets a server run the calls of a model's message, which is JSON or text.
pub(super) async fn send_message(
    args: &ServerArgs,
    server: &str,
    options: [(&str, Option<String>); 2],
    message: String,
    key: Option<&IdempotencyKey>,
) -> Result<(StatusCode, Value), Failure> {
    let is_json = serde_json::from_str::<IgnoredAny>(&message).is_ok();
    let kind = if is_json { "application/json" } else { "text/plain; charset=utf-8" };
    let options = options.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(options).finish();
    let address = join_url(server, &format!("/calls?{query}"));
    let request = build_client(None)?.post(address).header(CONTENT_TYPE, kind).body(message);
    send_request(args, server, with_idempotency_key(request, key)).await
}

fn with_idempotency_key(request: RequestBuilder, key: Option<&IdempotencyKey>) -> RequestBuilder {
    match key {
        Some(key) => request.header("idempotency-key", &*key.to_arc()),
        None => request,
    }
}

fn join_url(server: &str, path: &str) -> String {
    format!("{}{path}", server.trim_end_matches('/'))
}

/// Sends a request and reads its JSON answer, whatever the status.
async fn send_request(
    args: &ServerArgs,
    server: &str,
    mut request: RequestBuilder,
) -> Result<(StatusCode, Value), Failure> {
    if let Some(key) = &args.key {
        request = request.bearer_auth(key);
    }
    let unreachable = |error: reqwest::Error| {
        let mut message = format!("toolcrib: no answer from {server}");
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        while let Some(error) = cause {
            message.push_str(&format!(": {error}"));
            cause = error.source();
        }
        Failure::Failed(message)
    };
    let response = request.send().await.map_err(unreachable)?;
    let status = response.status();
    let text = response.text().await.map_err(unreachable)?;
    let value = serde_json::from_str(&text)
        .map_err(|_| Failure::Failed(format!("toolcrib: {server} answered {status} without JSON: is it Toolcrib?")))?;
    Ok((status, value))
}

/// Maximum duration of a health check: probes come every few seconds.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// Succeeds if the server is ready or, with `live`, alive.
pub(super) async fn check_health(server: Option<String>, listen: Option<String>, live: bool) -> Result<(), Failure> {
    let (path, state) = if live { ("livez", "alive") } else { ("readyz", "ready") };
    let server = server.unwrap_or_else(|| {
        let listen = listen.unwrap_or_else(|| DEFAULT_LISTEN.into());
        // An address for all interfaces is reached over loopback.
        let listen = listen.replacen("0.0.0.0:", "127.0.0.1:", 1).replacen("[::]:", "[::1]:", 1);
        format!("http://{listen}")
    });
    let url = format!("{}/{path}", server.trim_end_matches('/'));
    match build_client(Some(HEALTH_TIMEOUT))?.get(&url).send().await {
        Ok(response) if response.status() == StatusCode::OK => Ok(()),
        Ok(response) => Err(Failure::Failed(format!("toolcrib: {server} is not {state}: {}", response.status()))),
        Err(error) => Err(Failure::Failed(format!("toolcrib: no answer from {server}: {error}"))),
    }
}
