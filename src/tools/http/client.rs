//! The HTTP client of a tool. It connects only through the gate, follows no redirect and repeats no request.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use reqwest::{ClientBuilder, Request, Response, redirect, retry};
use rustls::crypto::{CryptoProvider, ring};
use tokio::sync::OnceCell;
use url::Url;

use super::address_policy::{AddressPolicy, Denied};
use super::own_ports::OwnPorts;
use crate::call::ToolError;

/// The error for an https request when the system has no CA certificates.
pub(crate) const NO_ROOTS: &str = "this system has no CA certificates, so no https server can be trusted: install \
     ca-certificates, or name a file of them in SSL_CERT_FILE";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// An HTTP client that connects only to addresses that its gate permits.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    inner: reqwest::Client,
    gate: AddressPolicy,
    has_roots: bool,
    own: OwnPorts,
    /// The client for requests to the ports of this service. It refuses all addresses of this machine. It is a
    /// separate client because a resolver does not get to know the port. It is built on first use.
    away: Arc<OnceCell<reqwest::Client>>,
}

impl Client {
    /// A client behind the gate. If the system has no CA certificates, the client can only use http.
    ///
    /// # Errors
    /// A sentence, if the TLS library cannot be set up.
    fn new(gate: AddressPolicy, own: OwnPorts) -> Result<Self, String> {
        if CryptoProvider::get_default().is_none() {
            // This fails only if another thread was faster, and then a provider is installed too.
            let _ = ring::default_provider().install_default();
        }
        // Without CA certificates the normal client cannot be built. `connecting` then returns a client that trusts
        // no server, for http only.
        let (inner, has_roots) = connecting(gate)?;
        Ok(Self { inner, gate, has_roots, own, away: Arc::default() })
    }

    /// Whether there are CA certificates, so that https can be used.
    pub(crate) fn has_roots(&self) -> bool {
        self.has_roots
    }

    async fn away(&self) -> Result<&reqwest::Client, String> {
        self.away.get_or_try_init(async || connecting(self.gate.away()).map(|(inner, _)| inner)).await
    }

    fn is_own_port(&self, url: &Url) -> bool {
        url.port_or_known_default().is_some_and(|port| self.own.has(port))
    }

    /// Checks a URL without DNS: hosts that are written as addresses, and names of this machine.
    ///
    /// # Errors
    /// The client may not connect to the host.
    pub(crate) fn check(&self, url: &Url) -> Result<(), Denied> {
        self.gate_of(self.is_own_port(url)).check(url)
    }

    fn gate_of(&self, is_own_port: bool) -> AddressPolicy {
        if is_own_port { self.gate.away() } else { self.gate }
    }

    /// Sends a request and waits for the head of the response.
    pub(crate) async fn send(&self, request: Request) -> Result<Response, ToolError> {
        let is_own_port = self.is_own_port(request.url());
        self.gate_of(is_own_port)
            .check(request.url())
            .map_err(|denied| ToolError::upstream_final(denied.to_string()))?;
        let host = host(request.url());
        if !self.has_roots && request.url().scheme() == "https" {
            return Err(ToolError::upstream_final(format!("`{host}`: {NO_ROOTS}")));
        }
        let inner = if is_own_port { self.away().await.map_err(ToolError::upstream_final)? } else { &self.inner };
        inner.execute(request).await.map_err(|error| failure(&host, error))
    }
}

/// A client that connects through the gate, and whether it has CA certificates for https.
fn connecting(gate: AddressPolicy) -> Result<(reqwest::Client, bool), String> {
    if let Ok(inner) = builder(gate).build() {
        return Ok((inner, true));
    }
    let bare = builder(gate).tls_certs_only([]).build();
    Ok((bare.map_err(|error| error.to_string())?, false))
}

/// The clients of the tools that are built together. Tools with equal gates share one client, and with it the
/// connections and the CA certificates, which are then read from the system only once.
#[derive(Debug, Default)]
pub struct Clients {
    behind: Mutex<HashMap<AddressPolicy, Client>>,
    own: OwnPorts,
}

impl Clients {
    /// Clients of a service that listens, or will listen, at these ports.
    pub fn new(own: OwnPorts) -> Self {
        Self { own, ..Self::default() }
    }

    /// The client behind this gate, built on first use.
    pub(crate) fn get(&self, gate: AddressPolicy) -> Result<Client, String> {
        let mut clients = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&gate) {
            return Ok(client.clone());
        }
        let client = Client::new(gate, self.own.clone())?;
        clients.insert(gate, client.clone());
        Ok(client)
    }
}

fn builder(gate: AddressPolicy) -> ClientBuilder {
    let accept = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json, */*"))]);
    reqwest::Client::builder()
        .user_agent(concat!("toolcrib/", env!("CARGO_PKG_VERSION")))
        .default_headers(accept)
        .dns_resolver(gate)
        .no_proxy()
        .redirect(redirect::Policy::none())
        // The layers of the tool decide on retries: they know the tool's effect.
        .retry(retry::never())
        .connect_timeout(CONNECT_TIMEOUT)
}

/// Host and port of a URL. Error messages show no other part of it.
pub(crate) fn host(url: &Url) -> String {
    let name = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"))
}

/// The error for a failure below HTTP. It names the host and the cause, but no path, query or header.
pub(crate) fn failure(host: &str, error: reqwest::Error) -> ToolError {
    let error = error.without_url();
    let causes = || causes(&error);
    if let Some(denied) = causes().find_map(|cause| cause.downcast_ref::<Denied>()) {
        return ToolError::upstream_final(denied.to_string()).before_anything();
    }
    if let Some(refused) = causes().find_map(|cause| cause.downcast_ref::<rustls::Error>()) {
        let message = format!("`{host}`: no TLS connection: {refused}");
        return match refused {
            rustls::Error::InvalidCertificate(_) => ToolError::upstream_final(message),
            _ => ToolError::upstream(message),
        };
    }
    let cause = causes().last().map(ToString::to_string).unwrap_or_default();
    let seconds = CONNECT_TIMEOUT.as_secs();
    let is_untouched = error.is_connect() || error.is_dns();
    let failure = ToolError::upstream(match &error {
        error if error.is_connect() && error.is_timeout() => {
            format!("`{host}`: no connection within {seconds} seconds")
        }
        error if error.is_dns() => format!("`{host}`: the name does not resolve: {cause}"),
        error if error.is_connect() => format!("`{host}`: no connection: {cause}"),
        error if error.is_body() || error.is_decode() => format!("`{host}`: the answer broke off: {cause}"),
        error if error.is_builder() => {
            return ToolError::upstream_final(format!("`{host}`: not a request: {cause}"));
        }
        _ => format!("`{host}`: the connection failed: {cause}"),
    });
    if is_untouched { failure.before_anything() } else { failure }
}

/// The error and all its causes. The `source` of an [`io::Error`] skips the error that it wraps, so this uses
/// `get_ref`.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner as &(dyn Error + 'static)),
        None => error.source(),
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn client(allow_private: bool) -> Client {
        Client::new(AddressPolicy::new(allow_private, "request.allow_private"), OwnPorts::default()).unwrap()
    }

    async fn fail(client: &Client, url: &str) -> ToolError {
        let request = Request::new(reqwest::Method::GET, Url::parse(url).unwrap());
        client.send(request).await.unwrap_err()
    }

    #[tokio::test]
    async fn denials_are_told_from_failures_for_names_and_addresses() {
        for host in ["localhost", "127.0.0.1", "[::ffff:127.0.0.1]"] {
            let error = fail(&client(false), &format!("http://{host}:1/?token=secret")).await;
            let ToolError::Upstream { message, retryable: false, .. } = error else { panic!("{error:?}") };
            assert!(message.contains("request.allow_private: true"), "{message}");
            assert!(!message.contains("secret"), "{message}");
        }
        let error = fail(&client(true), "http://169.254.169.254/latest/meta-data/").await;
        assert!(error.to_string().ends_with("which this tool may not reach"), "{error}");
    }

    #[tokio::test]
    async fn a_denial_by_the_resolver_is_found_behind_the_clients_error() {
        // `send` would refuse this name before the lookup.
        let error = client(false).inner.get("http://localhost:1/").send().await.unwrap_err();
        let ToolError::Upstream { message, retryable: false, .. } = failure("localhost:1", error) else {
            panic!("not a denial")
        };
        assert!(message.starts_with("`localhost` is at ") && message.contains("(loopback, "), "{message}");
    }

    #[tokio::test]
    async fn a_refused_connection_may_be_tried_again() {
        let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = fail(&client(true), &format!("http://{unused}/a?token=secret")).await;
        let ToolError::Upstream { message, retryable: true, .. } = error else { panic!("{error:?}") };
        assert!(message.starts_with(&format!("`{unused}`: no connection: Connection refused")), "{message}");
    }

    #[tokio::test]
    async fn a_name_that_does_not_resolve_may_be_tried_again() {
        let error = fail(&client(true), "http://no-such-host.invalid/").await;
        let ToolError::Upstream { message, retryable: true, .. } = error else { panic!("{error:?}") };
        assert!(message.contains("does not resolve"), "{message}");
    }

    /// A client as in an image without CA certificates.
    fn bare_client(has_roots: bool) -> Client {
        let client = client(true);
        let inner = builder(client.gate).tls_certs_only([]).build().unwrap();
        Client { inner, has_roots, ..client }
    }

    #[tokio::test]
    async fn without_ca_certificates_http_works_and_https_says_what_is_missing() {
        let bare = bare_client(false);
        assert!(fail(&bare, "https://127.0.0.1:1/").await.to_string().contains("SSL_CERT_FILE"));
        assert!(fail(&bare, "http://127.0.0.1:1/").await.to_string().contains("no connection"));
    }

    #[tokio::test]
    async fn a_server_that_speaks_no_tls_is_said_to() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            stream.read_to_end(&mut Vec::new()).await
        });
        let error = fail(&bare_client(true), &url).await;
        assert!(error.to_string().contains(": no TLS connection: received corrupt message"), "{error}");
    }

    #[tokio::test]
    async fn own_ports_are_refused_by_address_and_name() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for gate in [AddressPolicy::new(true, "request.allow_private"), AddressPolicy::open()] {
            let client = Client::new(gate, OwnPorts::default()).unwrap();
            client.own.add(port);
            for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"] {
                let error = fail(&client, &format!("http://{host}:{port}/invocations?token=secret")).await;
                let ToolError::Upstream { message, retryable: false, .. } = error else { panic!("{error:?}") };
                assert!(message.contains("where this service itself listens"), "{message}");
            }
            // The resolver also refuses a name that leads to this machine without showing it.
            let error = client.away().await.unwrap().get(format!("http://localhost:{port}/")).send().await.unwrap_err();
            assert!(failure("localhost", error).to_string().contains("where this service itself listens"));
            let other = fail(&client, "http://127.0.0.1:1/").await;
            assert!(other.to_string().contains("no connection"), "{other}");
        }
    }
}
