//! The HTTP client of a tool. It connects only as its address policy permits, follows no redirect
//! and repeats no request.

use std::error::Error;
use std::io;

use reqwest::Request;
use url::Url;

use super::address_policy::{AddressDenied, AddressPolicy, LookupError};
use super::own_ports::OwnPorts;
pub(crate) use super::transport::Response;
use super::transport::{CONNECT_TIMEOUT, HttpError, MAX_FIELDS, Transport, tls_config};
use crate::call::{ToolError, UpstreamReason};

/// The error for an https request when the system has no CA certificates.
pub(crate) const NO_CA_CERTIFICATES: &str = "this system has no CA certificates, so https cannot be used: install \
     ca-certificates, or name a file of them in SSL_CERT_FILE";

/// An HTTP client that connects only to addresses that its policy permits.
#[derive(Debug, Clone)]
pub(crate) struct HttpClient {
    transport: Transport,
    policy: AddressPolicy,
    /// Whether there are CA certificates, so that https can be used.
    pub(crate) has_ca_certificates: bool,
    own_ports: OwnPorts,
    /// For requests to the ports of this service. It refuses all addresses of this machine. It is
    /// separate because a resolver does not get to know the port.
    own_port_transport: Transport,
}

impl HttpClient {
    /// A client with this policy. If the system has no CA certificates, the client can only use
    /// http.
    pub(super) fn new(policy: AddressPolicy, own_ports: OwnPorts) -> Self {
        let (tls, has_ca_certificates) = tls_config();
        Self {
            transport: Transport::new(policy, tls.clone()),
            policy,
            has_ca_certificates,
            own_ports,
            own_port_transport: Transport::new(policy.denying_this_machine(), tls),
        }
    }

    fn is_own_port(&self, url: &Url) -> bool {
        url.port_or_known_default()
            .is_some_and(|port| self.own_ports.contains(port))
    }

    /// Checks a URL without DNS: hosts that are written as addresses, and names of this machine.
    ///
    /// # Errors
    /// The client may not connect to the host.
    pub(crate) fn check_url(&self, url: &Url) -> Result<(), AddressDenied> {
        self.policy_for(self.is_own_port(url)).check_url(url)
    }

    fn policy_for(&self, is_own_port: bool) -> AddressPolicy {
        if is_own_port {
            self.policy.denying_this_machine()
        } else {
            self.policy
        }
    }

    /// Sends a request and waits for the head of the response.
    pub(crate) async fn send(&self, request: Request) -> Result<Response, ToolError> {
        let url = request.url().clone();
        let host = || host_and_port(&url);
        let is_own_port = self.is_own_port(&url);
        self.policy_for(is_own_port)
            .check_url(&url)
            .map_err(|denied| {
                ToolError::upstream_permanent(denied.to_string())
                    .with_cause(UpstreamReason::AddressDenied, &host())
            })?;
        if !self.has_ca_certificates && url.scheme() == "https" {
            return Err(ToolError::upstream_permanent(format!(
                "`{}`: {NO_CA_CERTIFICATES}",
                host()
            )));
        }
        let transport = match is_own_port {
            true => &self.own_port_transport,
            false => &self.transport,
        };
        match transport.send(request).await {
            Ok(inner) => Ok(Response { inner, url }),
            Err(error) => Err(request_error(&host(), error)),
        }
    }
}

/// Host and port of a URL. Error messages show no other part of it.
pub(crate) fn host_and_port(url: &Url) -> String {
    let name = url.host_str().unwrap_or_default();
    url.port()
        .map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"))
}

/// The error for a failure below HTTP. It names the host and the cause, but no path, query or
/// header.
pub(crate) fn request_error(host: &str, error: impl Into<HttpError>) -> ToolError {
    let error = error.into();
    let (first, is_connect): (&(dyn Error + 'static), _) = match &error {
        HttpError::Target(fault) => {
            return ToolError::upstream_permanent(format!("`{host}`: not a request: {fault}"));
        }
        HttpError::Sending(error) => (error, error.is_connect()),
        HttpError::Body(error) => (error, false),
    };
    let chain = || error_chain(first);
    if let Some(denied) = chain().find_map(|cause| cause.downcast_ref::<AddressDenied>()) {
        let failure = ToolError::upstream_permanent(denied.to_string()).not_delivered();
        return failure.with_cause(UpstreamReason::AddressDenied, host);
    }
    if let Some(tls_error) = chain().find_map(|cause| cause.downcast_ref::<rustls::Error>()) {
        let message = format!("`{host}`: no TLS connection: {tls_error}");
        let failure = match tls_error {
            rustls::Error::InvalidCertificate(_) => ToolError::upstream_permanent(message),
            _ => ToolError::upstream(message),
        };
        return failure.with_cause(UpstreamReason::TlsFailed, host);
    }
    let cause = chain().last().map(ToString::to_string).unwrap_or_default();
    let seconds = CONNECT_TIMEOUT.as_secs();
    let is_io = |kind| {
        let of_kind = |cause: &io::Error| cause.kind() == kind;
        chain().any(|cause| cause.downcast_ref().is_some_and(of_kind))
    };
    let is_too_large = |cause: &hyper::Error| cause.is_parse_too_large();
    let (problem, reason) = match &error {
        _ if chain().any(|cause| cause.downcast_ref().is_some_and(is_too_large)) => (
            format!("the response has more than {MAX_FIELDS} header fields, or too long ones"),
            UpstreamReason::ConnectionLost,
        ),
        _ if is_connect && is_io(io::ErrorKind::TimedOut) => (
            format!("no connection within {seconds} seconds"),
            UpstreamReason::ConnectTimeout(seconds),
        ),
        _ if chain().any(<dyn Error>::is::<LookupError>) => (
            format!("the name does not resolve: {cause}"),
            UpstreamReason::NameUnknown,
        ),
        _ if is_connect => {
            let reason = match is_io(io::ErrorKind::ConnectionRefused) {
                true => UpstreamReason::ConnectionRefused,
                false => UpstreamReason::NotConnected,
            };
            (format!("no connection: {cause}"), reason)
        }
        error => {
            let problem = match error {
                HttpError::Body(_) => "the response ended early",
                _ => "the connection failed",
            };
            (
                format!("{problem}: {cause}"),
                UpstreamReason::ConnectionLost,
            )
        }
    };
    let failure = ToolError::upstream(format!("`{host}`: {problem}")).with_cause(reason, host);
    match is_connect {
        true => failure.not_delivered(),
        false => failure,
    }
}

/// The error and all its causes. The `source` of an [`io::Error`] skips the error that it wraps, so
/// this uses `get_ref`.
fn error_chain<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        match error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
        {
            Some(inner) => Some(inner as &(dyn Error + 'static)),
            None => error.source(),
        }
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::transport::trusting_no_server;
    use super::*;
    use crate::call::UpstreamFailure;

    fn client(allow_private: bool) -> HttpClient {
        HttpClient::new(
            AddressPolicy::new(allow_private, "request.allow_private"),
            OwnPorts::default(),
        )
    }

    fn get(url: &str) -> Request {
        Request::new(reqwest::Method::GET, Url::parse(url).unwrap())
    }

    async fn send_expecting_error(client: &HttpClient, url: &str) -> ToolError {
        client.send(get(url)).await.unwrap_err()
    }

    #[tokio::test]
    async fn denied_addresses_are_final_errors() {
        for host in ["localhost", "127.0.0.1", "[::ffff:127.0.0.1]"] {
            let error =
                send_expecting_error(&client(false), &format!("http://{host}:1/?token=secret"))
                    .await;
            let ToolError::Upstream(UpstreamFailure {
                message,
                retryable: false,
                ..
            }) = error
            else {
                panic!("{error:?}")
            };
            assert!(message.contains("request.allow_private: true"), "{message}");
            assert!(!message.contains("secret"), "{message}");
        }
        let error =
            send_expecting_error(&client(true), "http://169.254.169.254/latest/meta-data/").await;
        assert!(
            error.to_string().ends_with("which this tool may not reach"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn resolver_denial_is_found_in_error_chain() {
        // `send` would refuse this name before the lookup.
        let error = client(false)
            .transport
            .send(get("http://localhost:1/"))
            .await
            .unwrap_err();
        let ToolError::Upstream(UpstreamFailure {
            message,
            retryable: false,
            ..
        }) = request_error("localhost:1", error)
        else {
            panic!("not a denial")
        };
        assert!(
            message.starts_with("`localhost` is at ") && message.contains("(loopback, "),
            "{message}"
        );
    }

    #[tokio::test]
    async fn refused_connection_is_retryable() {
        let unused = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let error =
            send_expecting_error(&client(true), &format!("http://{unused}/a?token=secret")).await;
        let ToolError::Upstream(UpstreamFailure {
            message,
            retryable: true,
            ..
        }) = error
        else {
            panic!("{error:?}")
        };
        assert!(
            message.starts_with(&format!("`{unused}`: no connection: Connection refused")),
            "{message}"
        );
    }

    #[tokio::test]
    async fn unresolved_name_is_retryable() {
        let error = send_expecting_error(&client(true), "http://no-such-host.invalid/").await;
        let ToolError::Upstream(UpstreamFailure {
            message,
            retryable: true,
            ..
        }) = error
        else {
            panic!("{error:?}")
        };
        assert!(message.contains("does not resolve"), "{message}");
    }

    /// A client as in an image without CA certificates.
    fn bare_client(has_ca_certificates: bool) -> HttpClient {
        let client = client(true);
        HttpClient {
            transport: Transport::new(client.policy, trusting_no_server()),
            has_ca_certificates,
            ..client
        }
    }

    #[tokio::test]
    async fn missing_ca_certificates_fail_https_only() {
        let bare = bare_client(false);
        assert!(
            send_expecting_error(&bare, "https://127.0.0.1:1/")
                .await
                .to_string()
                .contains("SSL_CERT_FILE")
        );
        assert!(
            send_expecting_error(&bare, "http://127.0.0.1:1/")
                .await
                .to_string()
                .contains("no connection")
        );
    }

    #[tokio::test]
    async fn server_without_tls_gives_tls_error() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream
                .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                .await
                .unwrap();
            stream.read_to_end(&mut Vec::new()).await
        });
        let error = send_expecting_error(&bare_client(true), &url).await;
        assert!(
            error
                .to_string()
                .contains(": no TLS connection: received corrupt message"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn own_ports_are_denied_by_any_name() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for policy in [
            AddressPolicy::new(true, "request.allow_private"),
            AddressPolicy::allow_all(),
        ] {
            let client = HttpClient::new(policy, OwnPorts::default());
            client.own_ports.add(port);
            for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"] {
                let error = send_expecting_error(
                    &client,
                    &format!("http://{host}:{port}/invocations?token=secret"),
                )
                .await;
                let ToolError::Upstream(UpstreamFailure {
                    message,
                    retryable: false,
                    ..
                }) = error
                else {
                    panic!("{error:?}")
                };
                assert!(
                    message.contains("where this service itself listens"),
                    "{message}"
                );
            }
            // The resolver also refuses a name that leads to this machine without showing it.
            let error = client
                .own_port_transport
                .send(get(&format!("http://localhost:{port}/")))
                .await
                .unwrap_err();
            assert!(
                request_error("localhost", error)
                    .to_string()
                    .contains("where this service itself listens")
            );
            let other = send_expecting_error(&client, "http://127.0.0.1:1/").await;
            assert!(other.to_string().contains("no connection"), "{other}");
        }
    }
}
