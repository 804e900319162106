//! Requests to a running server: its address in the short forms that people write, and how its
//! answers are printed.

use std::error::Error;
use std::io;
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, RequestBuilder, StatusCode};
use rustls::crypto::ring;
use serde::de::IgnoredAny;
use serde_json::Value;
use url::{Url, form_urlencoded};

use super::Failure;
use super::failure::describe_io_error;
use super::output::print_json;
use crate::call::IdempotencyKey;
use crate::environment::Environment;
use crate::manifest::{DEFAULT_LISTEN, complete_address};

/// A running server and the key to it.
#[derive(clap::Args)]
pub(super) struct ServerArgs {
    /// A running server, e.g. http://127.0.0.1:7411 or localhost:7411.
    #[arg(long, env = "TOOLCRIB_SERVER")]
    pub(super) server: Option<String>,
    /// The caller's key for it.
    #[arg(long, env = "TOOLCRIB_KEY", hide_env_values = true)]
    key: Option<String>,
}

impl ServerArgs {
    /// A client of the server, if one was named.
    pub(super) fn client(&self) -> Result<Option<Client>, Failure> {
        let Some(server) = &self.server else {
            return Ok(None);
        };
        Client::new(complete_url(server)?, self.key.clone(), None).map(Some)
    }

    /// A client of the server that was named, or else of the service that listens on this machine.
    pub(super) fn client_or_local(&self, environment: &Environment) -> Result<Client, Failure> {
        match self.client()? {
            Some(client) => Ok(client),
            None => Client::new(
                local_url(environment.get_text("TOOLCRIB_LISTEN"))?,
                self.key.clone(),
                None,
            ),
        }
    }
}

/// The URL of a service on this machine that listens at this address, or at the default address.
fn local_url(listen: Option<&str>) -> Result<String, Failure> {
    let url = complete_url(listen.unwrap_or(DEFAULT_LISTEN))?;
    // An address for all interfaces is reached over loopback.
    Ok(url
        .replacen("//0.0.0.0:", "//127.0.0.1:", 1)
        .replacen("//[::]:", "//[::1]:", 1))
}

/// A client of one server.
pub(super) struct Client {
    /// The URL without a slash at its end.
    url: String,
    key: Option<String>,
    http: reqwest::Client,
}

impl Client {
    fn new(url: String, key: Option<String>, timeout: Option<Duration>) -> Result<Self, Failure> {
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
        let built = builder()
            .build()
            .or_else(|_| builder().tls_certs_only([]).build());
        let http = built.map_err(|error| Failure::Failed(format!("toolcrib: {error}")))?;
        Ok(Self { url, key, http })
    }

    /// Sends a request without a body. Returns the JSON answer, whatever the status.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
    ) -> Result<(StatusCode, Value), Failure> {
        self.send_request(self.http.request(method, self.join_url(path)))
            .await
    }

    /// Reads a resource, whatever the status.
    pub(super) async fn get(&self, path: &str) -> Result<(StatusCode, Value), Failure> {
        self.send(Method::GET, path).await
    }

    /// Calls a tool, with an idempotency key if there is one.
    pub(super) async fn invoke_tool(
        &self,
        path: &str,
        body: &Value,
        key: Option<&IdempotencyKey>,
    ) -> Result<(StatusCode, Value), Failure> {
        self.send_request(with_idempotency_key(
            self.http.post(self.join_url(path)).json(body),
            key,
        ))
        .await
    }

    /// Lets the server run the calls of a model's message, which is JSON or text.
    pub(super) async fn send_message(
        &self,
        options: [(&str, &Option<String>); 2],
        message: String,
        key: Option<&IdempotencyKey>,
    ) -> Result<(StatusCode, Value), Failure> {
        let is_json = serde_json::from_str::<IgnoredAny>(&message).is_ok();
        let kind = if is_json {
            "application/json"
        } else {
            "text/plain; charset=utf-8"
        };
        let query = encode_query(options.map(|(name, value)| (name, value.as_deref())));
        let request = self.http.post(self.join_url(&format!("/calls?{query}")));
        let request = request.header(CONTENT_TYPE, kind).body(message);
        self.send_request(with_idempotency_key(request, key)).await
    }

    fn join_url(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// Sends a request and reads its JSON answer, whatever the status.
    async fn send_request(
        &self,
        mut request: RequestBuilder,
    ) -> Result<(StatusCode, Value), Failure> {
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        let response = request
            .send()
            .await
            .map_err(|error| self.no_answer(&error))?;
        let status = response.status();
        let text = response
            .text()
            .await
            .map_err(|error| self.no_answer(&error))?;
        let value = serde_json::from_str(&text).map_err(|_| {
            Failure::Failed(format!(
                "toolcrib: {} answered {status} without JSON: is it Toolcrib?",
                self.url
            ))
        })?;
        Ok((status, value))
    }

    fn no_answer(&self, error: &reqwest::Error) -> Failure {
        Failure::Failed(format!(
            "toolcrib: no answer from {}: {}",
            self.url,
            describe_request_error(error)
        ))
    }
}

fn with_idempotency_key(request: RequestBuilder, key: Option<&IdempotencyKey>) -> RequestBuilder {
    match key {
        Some(key) => request.header("idempotency-key", &*key.to_arc()),
        None => request,
    }
}

/// Why a request had no answer: the last cause, since the causes above it only name layers of the
/// client.
fn describe_request_error(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "it took too long".into();
    }
    let causes = std::iter::successors(Some(error as &(dyn Error + 'static)), |&error| {
        error.source()
    });
    let (mut io_error, mut last) = (None, None);
    for cause in causes {
        io_error = cause.downcast_ref::<io::Error>().or(io_error);
        last = Some(cause);
    }
    match io_error {
        Some(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            "connection refused; is the service running there?".into()
        }
        Some(error) => describe_io_error(error),
        None => last.map(ToString::to_string).unwrap_or_default(),
    }
}

/// Maximum duration of a health check: probes come every few seconds.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// Succeeds if the server is ready or, with `live`, alive.
pub(super) async fn check_health(
    server: Option<String>,
    listen: Option<String>,
    live: bool,
) -> Result<(), Failure> {
    let (path, state) = if live {
        ("livez", "alive")
    } else {
        ("readyz", "ready")
    };
    let server = match server {
        Some(server) => complete_url(&server)?,
        None => local_url(listen.as_deref())?,
    };
    let client = Client::new(server, None, Some(HEALTH_TIMEOUT))?;
    match client
        .http
        .get(client.join_url(&format!("/{path}")))
        .send()
        .await
    {
        Ok(response) if response.status() == StatusCode::OK => Ok(()),
        Ok(response) => Err(Failure::Failed(format!(
            "toolcrib: {} is not {state}: {}",
            client.url,
            response.status()
        ))),
        Err(error) => Err(client.no_answer(&error)),
    }
}

/// The words of a problem for a person.
pub(super) fn describe_problem(status: StatusCode, problem: &Value) -> String {
    match (problem["title"].as_str(), problem["detail"].as_str()) {
        (_, Some(detail)) if !detail.is_empty() => detail.to_owned(),
        (Some(title), _) => title.to_owned(),
        (None, _) => format!("the server answered {status}"),
    }
}

/// A name as one segment of a path.
pub(super) fn encode_segment(name: &str) -> impl std::fmt::Display + '_ {
    percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC)
}

/// A query of the parameters that have a value.
pub(super) fn encode_query<'a>(
    parameters: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
) -> String {
    let parameters = parameters.into_iter();
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs(parameters.filter_map(|(name, value)| Some((name, value?))))
        .finish()
}

/// Completes the URL of a server: `localhost:7435`, `:7435` and `7435` are http URLs.
///
/// # Errors
/// A usage error that says what a URL is.
pub(super) fn complete_url(text: &str) -> Result<String, Failure> {
    let text = text.trim();
    let full = match complete_address(text) {
        _ if text.contains("://") => text.to_owned(),
        Ok(address) => format!("http://{address}"),
        // A host without a port, or with a path.
        Err(_) => format!("http://{text}"),
    };
    let is_http = Url::parse(&full)
        .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if is_http {
        return Ok(full.trim_end_matches('/').to_owned());
    }
    Err(Failure::Usage(format!(
        "toolcrib: `{text}` is no address of a server: write a URL such as http://127.0.0.1:7411, or a host and a port \
         such as localhost:7411"
    )))
}

/// The body of a successful answer. A refusal is a sentence for people, and the whole problem for
/// programs.
pub(super) fn successful(
    (status, answer): (StatusCode, Value),
    is_for_people: bool,
) -> Result<Value, Failure> {
    if status.is_success() {
        return Ok(answer);
    }
    if is_for_people {
        return Err(Failure::Failed(format!(
            "toolcrib: {}",
            describe_problem(status, &answer)
        )));
    }
    print_json(&answer);
    Err(Failure::NegativeResult)
}

/// Prints a successful answer: with `print` for people, and as JSON for programs.
pub(super) fn print_answer(
    answer: (StatusCode, Value),
    is_for_people: bool,
    print: impl FnOnce(&Value),
) -> Result<(), Failure> {
    let answer = successful(answer, is_for_people)?;
    match is_for_people {
        true => print(&answer),
        false => print_json(&answer),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(text: &str) -> Result<String, String> {
        complete_url(text).map_err(|failure| match failure {
            Failure::Usage(message) => message,
            _ => String::new(),
        })
    }

    #[test]
    fn missing_schemes_are_http() {
        for (text, expected) in [
            ("localhost:7435", "http://localhost:7435"),
            ("7435", "http://127.0.0.1:7435"),
            (":7435", "http://127.0.0.1:7435"),
            ("crib.example", "http://crib.example"),
            ("crib.example/tools/", "http://crib.example/tools"),
            ("https://crib.example/a/", "https://crib.example/a"),
            ("[::1]:7435", "http://[::1]:7435"),
        ] {
            assert_eq!(completed(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn other_schemes_are_refused() {
        for text in ["ftp://crib.example", "", "http://", "a b"] {
            assert!(
                completed(text).is_err_and(|message| message.contains("write a URL such as")),
                "{text}"
            );
        }
    }
}
