//! Keeps web pages that the operator has not allowed from reaching the service through a browser.
//!
//! On every route, before anything else:
//!
//! - `Host` must name the service. A page that uses DNS rebinding sends its own name.
//! - `Origin`, if present, must be the service's own or an allowed one.
//! - `Sec-Fetch-Site` is a second check (<https://www.w3.org/TR/fetch-metadata/>), because some
//!   requests of foreign pages have no `Origin`, and some routes need no JSON body. A page of
//!   another site, or of another port of this machine, may only link to the service. Programs other
//!   than browsers send no such header.
//!
//! Every answer forbids browsers to guess its type and to pass it to other origins.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN, X_CONTENT_TYPE_OPTIONS};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use tower_http::validate_request::ValidateRequest;

use super::limits::HEADER_BYTES;
use crate::http::problem::ApiError;
use crate::manifest::ServerSettings;

const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// The local end of a connection, put on each request by the accept loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalAddress {
    /// The address and port at which the connection arrived.
    pub address: SocketAddr,
    /// The service listens on all addresses (`0.0.0.0` or `[::]`).
    pub listens_everywhere: bool,
}

/// The allowed hosts and origins. Clones share them.
#[derive(Clone)]
pub(crate) struct Guard(Arc<AllowedNames>);

struct AllowedNames {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Guard {
    pub(crate) fn new(settings: &ServerSettings) -> Self {
        let lower = |names: &[String]| -> Vec<String> {
            names
                .iter()
                .map(|name| name.trim_end_matches('/').to_lowercase())
                .collect()
        };
        let (mut hosts, mut origins) = (
            lower(&settings.allowed_hosts),
            lower(&settings.allowed_origins),
        );
        if let Some(url) = &settings.public_url {
            hosts.push(url.authority().to_owned());
            origins.push(url.origin());
        }
        Self(Arc::new(AllowedNames { hosts, origins }))
    }

    /// Whether `Host` names this service: a name of loopback, its own address and port, or an
    /// allowed name.
    fn is_own_host(&self, authority: &Authority, local: Option<LocalAddress>) -> bool {
        let host = authority.host().to_lowercase();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let with_port = authority.as_str().to_lowercase();
        if self
            .0
            .hosts
            .iter()
            .any(|name| *name == host || *name == with_port)
        {
            return true;
        }
        // DNS cannot give these names to a page of another machine. The port is not checked:
        // `kubectl port-forward`, `docker -p` and `ssh -L` forward a port of their own, and the
        // connection arrives at any address.
        if matches!(bare, "localhost" | "127.0.0.1" | "::1") {
            return true;
        }
        // A user may type the listen address that the service shows, and systems connect it to this
        // machine. This is as safe as 127.0.0.1: a page from elsewhere does not have this address
        // as its host, so its `Origin` differs.
        if local.is_some_and(|local| local.listens_everywhere) && matches!(bare, "0.0.0.0" | "::") {
            return true;
        }
        let local = local.map(|local| local.address);
        let port_fits = match (authority.port_u16(), local) {
            (Some(port), Some(local)) => port == local.port(),
            (None, Some(local)) => local.port() == 80,
            (_, None) => true,
        };
        let is_own =
            |ip: IpAddr| local.is_some_and(|local| ip.to_canonical() == local.ip().to_canonical());
        port_fits && bare.parse().is_ok_and(is_own)
    }

    fn check(&self, request: &Request) -> Result<(), ApiError> {
        // hyper bounds its buffer, but a block that arrives in one piece may be larger than that.
        let fields = request
            .headers()
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len() + 4);
        if fields.sum::<usize>()
            + request
                .uri()
                .path_and_query()
                .map_or(0, |target| target.as_str().len())
            > HEADER_BYTES
        {
            return Err(ApiError::HeaderTooLarge(HEADER_BYTES));
        }
        let refuse = |detail: &str| Err(ApiError::Forbidden(detail.to_owned()));
        let local = request.extensions().get::<LocalAddress>().copied();
        let headers = request.headers();
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return refuse("send exactly one Host");
        };
        let Some(authority) = host
            .to_str()
            .ok()
            .and_then(|host| host.parse::<Authority>().ok())
        else {
            return refuse("this Host cannot be read");
        };
        if authority.as_str().contains('@') || !self.is_own_host(&authority, local) {
            return refuse(
                "this Host is not allowed; server.allowed_hosts lists the names allowed besides the listen address",
            );
        }
        // A target in absolute form must name the service too.
        if request
            .uri()
            .authority()
            .is_some_and(|target| !self.is_own_host(target, local))
        {
            return refuse("this request target is not allowed");
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        let origin = match (origins.next(), origins.next()) {
            (Some(origin), None) => origin,
            (Some(_), Some(_)) => return refuse("send at most one Origin"),
            (None, _) if is_cross_site(headers) && !is_navigation(request.method(), headers) => {
                return refuse(
                    "pages of other sites are not allowed; server.allowed_origins lists the allowed origins",
                );
            }
            (None, _) => return Ok(()),
        };
        let origin = origin.to_str().unwrap_or_default().to_lowercase();
        let own = origin.strip_prefix("http://") == Some(&authority.as_str().to_lowercase());
        if own || self.0.origins.contains(&origin) {
            return Ok(());
        }
        refuse("this Origin is not allowed; server.allowed_origins lists the allowed origins")
    }
}

/// Whether a browser declares that a page of another origin sent the request. Unknown values are
/// ignored, as the standard requires.
fn is_cross_site(headers: &HeaderMap) -> bool {
    headers
        .get_all(SEC_FETCH_SITE)
        .iter()
        .any(|site| site == "cross-site" || site == "same-site")
}

/// Whether the user follows a link into a whole tab, not a frame. This is safe: the page with the
/// link sees nothing of the answer, and GET and HEAD change nothing.
fn is_navigation(method: &Method, headers: &HeaderMap) -> bool {
    let all_are = |name, word: &str| headers.get_all(name).iter().all(|value| value == word);
    matches!(*method, Method::GET | Method::HEAD)
        && headers.contains_key(SEC_FETCH_MODE)
        && all_are(SEC_FETCH_MODE, "navigate")
        // The first browsers with fetch metadata did not send this header, so it may be missing.
        && all_are(SEC_FETCH_DEST, "document")
}

/// Adds the headers that limit what browsers may do with an answer. hyper's own answers to invalid
/// HTTP lack them, but have no body.
pub(crate) fn add_security_headers<B>(mut response: Response<B>) -> Response<B> {
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    headers.insert(CROSS_ORIGIN_RESOURCE_POLICY, SAME_ORIGIN);
    response
}

impl ValidateRequest<Body> for Guard {
    type ResponseBody = Body;

    fn validate(&mut self, request: &mut Request) -> Result<(), Response> {
        self.check(request).map_err(IntoResponse::into_response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(address: &str) -> Option<LocalAddress> {
        address.parse().ok().map(|at| LocalAddress {
            address: at,
            listens_everywhere: false,
        })
    }

    #[test]
    fn unspecified_host_needs_an_unspecified_listener() {
        let guard = Guard::new(&ServerSettings::default());
        let knows = |host: &str, listens_everywhere| {
            let at = "127.0.0.1:7411".parse().unwrap();
            guard.is_own_host(
                &host.parse().unwrap(),
                Some(LocalAddress {
                    address: at,
                    listens_everywhere,
                }),
            )
        };
        for host in ["0.0.0.0:7411", "0.0.0.0", "0.0.0.0:8080", "[::]:7411"] {
            assert!(knows(host, true) && !knows(host, false), "{host}");
        }
        for other in ["0.0.0.0.x.test", "0.0.0.1", "0", "[::2]"] {
            assert!(!knows(other, true), "{other}");
        }
    }

    #[test]
    fn loopback_names_pass_with_any_port() {
        let guard = Guard::new(&ServerSettings::default());
        for local in [
            "127.0.0.1:7411",
            "[::1]:7411",
            "10.0.0.7:7411",
            "[fd00::7]:7411",
        ] {
            for host in [
                "localhost",
                "LOCALHOST:8080",
                "127.0.0.1",
                "127.0.0.1:8080",
                "[::1]",
                "[::1]:1",
            ] {
                assert!(
                    guard.is_own_host(&host.parse().unwrap(), self::local(local)),
                    "{host} at {local}"
                );
            }
            for other in [
                "localhost.x.test",
                "x.localhost",
                "127.0.0.1.x.test:7411",
                "x.test:7411",
                "0.0.0.0:7411",
            ] {
                assert!(
                    !guard.is_own_host(&other.parse().unwrap(), self::local(local)),
                    "{other} at {local}"
                );
            }
        }
    }

    /// DNS rebinding names the page's host; a page on another port of this machine names that port.
    #[test]
    fn own_address_needs_the_port() {
        let guard = Guard::new(&ServerSettings::default());
        let knows =
            |host: &str, local: &str| guard.is_own_host(&host.parse().unwrap(), self::local(local));
        assert!(
            knows("10.0.0.7:7411", "10.0.0.7:7411") && knows("127.0.0.2:7411", "127.0.0.2:7411")
        );
        for other in [
            "10.0.0.7:7412",
            "10.0.0.7",
            "10.0.0.8:7411",
            "127.0.0.2:7411",
        ] {
            assert!(!knows(other, "10.0.0.7:7411"), "{other}");
        }
        assert!(knows("10.0.0.7", "10.0.0.7:80"), "80 is the default port");
    }
}
