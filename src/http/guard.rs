//! A browser must not reach the service through a page that its owner did not mean to let in.
//!
//! `Host` must name the service (a DNS-rebinding page names itself), and `Origin`, when there is one, must be the
//! service's own or an allowed one. On every route, before anything else. Together with `content-type:
//! application/json` on every body this leaves no request that a foreign page could make.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::ApiError;
use super::settings::{HEADER_BYTES, ServerSettings};

/// The local end of a connection, put on each request by the accept loop.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocalAddress(pub SocketAddr);

/// Names that are answered.
#[derive(Clone)]
pub(super) struct Guard(Arc<Names>);

struct Names {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Guard {
    pub(super) fn new(settings: &ServerSettings) -> Self {
        let lower = |names: &[String]| names.iter().map(|name| name.trim_end_matches('/').to_lowercase()).collect();
        Self(Arc::new(Names { hosts: lower(&settings.allowed_hosts), origins: lower(&settings.allowed_origins) }))
    }

    /// Whether `Host` names this service: its own address, `localhost` on loopback, or an allowed name.
    fn knows_host(&self, authority: &Authority, local: Option<SocketAddr>) -> bool {
        let host = authority.host().to_lowercase();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let whole = authority.as_str().to_lowercase();
        if self.0.hosts.iter().any(|name| *name == host || *name == whole) {
            return true;
        }
        // Without a socket (a router driven in process) nothing but loopback names is known.
        let at_loopback = local.is_none_or(|local| local.ip().to_canonical().is_loopback());
        let port_fits = match (authority.port_u16(), local) {
            (Some(port), Some(local)) => port == local.port(),
            (None, Some(local)) => local.port() == 80,
            (_, None) => true,
        };
        let names_it = match bare.parse::<IpAddr>() {
            Ok(ip) => local.map_or(ip.is_loopback(), |local| ip.to_canonical() == local.ip().to_canonical()),
            Err(_) => bare == "localhost" && at_loopback,
        };
        port_fits && names_it
    }

    fn check(&self, request: &Request) -> Result<(), ApiError> {
        // hyper bounds its buffer, but a block that arrives in one piece may be larger than that.
        let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
        if fields.sum::<usize>() + request.uri().path_and_query().map_or(0, |target| target.as_str().len())
            > HEADER_BYTES
        {
            return Err(ApiError::LargeHeader(HEADER_BYTES));
        }
        let refuse = |what: &str| Err(ApiError::Forbidden(what.to_owned()));
        let local = request.extensions().get::<LocalAddress>().map(|local| local.0);
        let headers = request.headers();
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return refuse("exactly one Host is needed") };
        let Some(authority) = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()) else {
            return refuse("this Host cannot be read");
        };
        if authority.as_str().contains('@') || !self.knows_host(&authority, local) {
            return refuse("this Host is not answered; server.allowed_hosts names others than the listen address");
        }
        // An absolute-form target must say the same.
        if request.uri().authority().is_some_and(|target| !self.knows_host(target, local)) {
            return refuse("this request target is not answered");
        }
        let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
        let origin = origin.to_str().unwrap_or_default().to_lowercase();
        let own = origin.strip_prefix("http://") == Some(&authority.as_str().to_lowercase());
        if own || self.0.origins.contains(&origin) {
            return Ok(());
        }
        refuse("this Origin is not answered; server.allowed_origins names those that are")
    }
}

/// The middleware.
pub(super) async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    match guard.check(&request) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}
