//! The connections of the HTTP client, over TCP or TLS, and what arrives over them.
//!
//! They are kept in the pool of hyper-util, without the client of reqwest around it. That client
//! parses the URL of each request again and copies its header, for redirects and retries that no
//! tool has.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use derive_more::{Deref, From};
use futures_util::TryStreamExt;
use futures_util::future::BoxFuture;
use http_body_util::BodyDataStream;
use hyper::body::{Body, Bytes, Incoming};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use reqwest::Request;
use reqwest::header::{ACCEPT, HeaderValue, USER_AGENT};
use rustls::crypto::{CryptoProvider, ring};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::ConfigVerifierExt as _;
use tokio::net::TcpStream;
use tower::Service;
use url::Url;

use super::address_policy::AddressPolicy;

/// How long the connection and the TLS handshake may take together.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Most header fields of a response over HTTP/1.
pub(super) const MAX_FIELDS: usize = 256;
/// How long a connection waits in the pool for the next request.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Times after which TCP probes an idle connection, and again.
const KEEPALIVE: Option<Duration> = Some(Duration::from_secs(15));

/// Why no response arrived, or not all of it.
#[derive(Debug, From)]
pub(crate) enum HttpError {
    /// The URL cannot be the target of a request.
    #[from(skip)]
    Target(&'static str),
    /// The request was not sent, or no response arrived.
    Sending(legacy::Error),
    /// The body of the response ended early.
    Body(hyper::Error),
}

/// A response whose body has not been read yet.
#[derive(Debug, Deref)]
pub(crate) struct Response {
    #[deref]
    pub(super) inner: hyper::Response<Incoming>,
    pub(super) url: Url,
}

impl Response {
    /// The URL of the request.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// The length of the body, if it is known.
    pub(crate) fn content_length(&self) -> Option<u64> {
        self.body().size_hint().exact()
    }

    /// The next bytes of the body; `None` at its end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, hyper::Error> {
        BodyDataStream::new(self.inner.body_mut()).try_next().await
    }

    /// The body.
    pub(crate) fn into_chunks(self) -> BodyDataStream<Incoming> {
        BodyDataStream::new(self.inner.into_body())
    }
}

/// Sends requests over pooled connections to addresses that a policy permits.
#[derive(Debug, Clone)]
pub(super) struct Transport(legacy::Client<Connector, reqwest::Body>);

impl Transport {
    pub(super) fn new(policy: AddressPolicy, tls: Arc<ClientConfig>) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(policy);
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_keepalive(KEEPALIVE);
        tcp.set_keepalive_interval(KEEPALIVE);
        tcp.set_keepalive_retries(Some(3));
        #[cfg(target_os = "linux")]
        tcp.set_tcp_user_timeout(Some(Duration::from_secs(30)));
        let pool = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .http1_max_headers(MAX_FIELDS)
            .build(Connector(HttpsConnector::from((tcp, tls))));
        Self(pool)
    }

    /// Sends a request and waits for the head of the response.
    pub(super) async fn send(
        &self,
        request: Request,
    ) -> Result<hyper::Response<Incoming>, HttpError> {
        if !matches!(request.url().scheme(), "http" | "https") {
            return Err(HttpError::Target("URL scheme is not allowed"));
        }
        let mut request = hyper::Request::try_from(request)
            .map_err(|_| HttpError::Target("Parsed Url is not a valid Uri"))?;
        let fields = request.headers_mut();
        let accept = HeaderValue::from_static("application/json, */*");
        fields.entry(ACCEPT).or_insert(accept);
        let agent = HeaderValue::from_static(concat!("toolcrib/", env!("CARGO_PKG_VERSION")));
        fields.entry(USER_AGENT).or_insert(agent);
        Ok(self.0.request(request).await?)
    }
}

/// The settings of TLS, and whether the system has CA certificates.
pub(super) fn tls_config() -> (Arc<ClientConfig>, bool) {
    if CryptoProvider::get_default().is_none() {
        // This fails only if another thread was faster, and then a provider is installed too.
        let _ = ring::default_provider().install_default();
    }
    match ClientConfig::with_platform_verifier() {
        Ok(config) => (with_protocols(config), true),
        Err(_) => (trusting_no_server(), false),
    }
}

/// The settings of TLS without any CA certificate.
pub(super) fn trusting_no_server() -> Arc<ClientConfig> {
    let builder = ClientConfig::builder().with_root_certificates(RootCertStore::empty());
    with_protocols(builder.with_no_client_auth())
}

fn with_protocols(mut config: ClientConfig) -> Arc<ClientConfig> {
    config.alpn_protocols = vec![b"h2".into(), b"http/1.1".into()];
    Arc::new(config)
}

/// Opens connections within [`CONNECT_TIMEOUT`].
#[derive(Debug, Clone)]
struct Connector(HttpsConnector<HttpConnector<AddressPolicy>>);

impl Service<hyper::Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, target: hyper::Uri) -> Self::Future {
        let connecting = self.0.call(target);
        Box::pin(async {
            let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
            connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn handshake_counts_against_the_time_for_connecting() {
        // The system accepts the connection, and no server answers the handshake.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        let (tls, _) = tls_config();
        let transport = Transport::new(AddressPolicy::allow_all(), tls);
        let request = Request::new(reqwest::Method::GET, url.parse().unwrap());
        let error = transport.send(request).await.unwrap_err();
        let HttpError::Sending(error) = error else {
            panic!("{error:?}")
        };
        assert!(error.is_connect());
        let cause = error.source().unwrap().downcast_ref::<io::Error>();
        assert_eq!(cause.unwrap().kind(), io::ErrorKind::TimedOut);
    }
}
