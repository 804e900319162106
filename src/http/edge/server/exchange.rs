//! Serves one connection.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::{Bytes, HttpBody};
use axum::http::header::CONNECTION;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::IntoResponse;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::ServiceExt;

use super::connections::{Connection, Order, Slot};
use super::socket::Socket;
use crate::http::edge::body::RequestError;
use crate::http::edge::guard::{LocalAddress, add_security_headers};
use crate::http::edge::limits::{HEADER_BYTES, HEADER_FIELDS};
use crate::http::problem::ApiError;

/// Paths that are also answered on an extra connection, when all slots have requests in flight.
const PROBE_PATHS: [&str; 3] = ["/livez", "/readyz", "/metrics"];

/// Serves a connection until one side ends it. `listens_everywhere`: the service listens on all
/// addresses.
pub(super) async fn serve_connection(
    stream: TcpStream,
    router: Router,
    listens_everywhere: bool,
    slot: Slot,
) {
    let Ok(address) = stream.local_addr() else {
        return;
    };
    let local = LocalAddress {
        address,
        listens_everywhere,
    };
    // Answers are written in one piece. Waiting to fill a packet (Nagle) would only add latency.
    let _ = stream.set_nodelay(true);
    let mut next = Some(Socket::new(stream, slot.connection.clone()));
    while let Some(socket) = next {
        next = match serve_until_idle(socket, &router, local, &slot).await {
            Some(idle) => wait_for_bytes(idle, &slot.connection).await,
            None => None,
        };
    }
}

/// Serves requests until one side ends the connection, or until the connection has been idle for a
/// while. Then it returns the socket, without hyper's part of the connection: that has 16 KiB of
/// buffers.
async fn serve_until_idle(
    socket: Socket,
    router: &Router,
    local: LocalAddress,
    slot: &Slot,
) -> Option<Socket> {
    // In a box, so that an idle connection has no memory for it.
    let mut http = Box::new(
        http1::Builder::new()
            // The table of connections keeps the times. hyper's timer would also count the idle
            // time between two requests, which has a longer limit.
            .header_read_timeout(None)
            .max_buf_size(HEADER_BYTES)
            .max_headers(HEADER_FIELDS)
            .serve_connection(
                TokioIo::new(socket),
                service_fn(|request| answer_request(request, router, local, slot)),
            ),
    );
    // hyper goes first: the order to free the buffers counts only if it has found no bytes.
    tokio::select! {
        biased;
        result = &mut *http => {
            if let Err(error) = result {
                tracing::debug!(%error, "a connection ended early");
            }
            None
        }
        order = slot.connection.next_order() => {
            if order == Order::Close {
                return None;
            }
            let parts = http.into_parts();
            Some(parts.io.into_inner().with_unread(parts.read_buf))
        }
    }
}

/// Waits until bytes arrive, or the end of the connection. Returns `None` if the connection is to be
/// closed.
async fn wait_for_bytes(socket: Socket, connection: &Connection) -> Option<Socket> {
    loop {
        tokio::select! {
            biased;
            order = connection.next_order() => {
                if order == Order::Close {
                    return None;
                }
            }
            // hyper meets the error, if there is one.
            _ = socket.readable() => return Some(socket),
        }
    }
}

/// Answers one request. The last byte of its body makes the connection protected: from then on it
/// is not closed for another one. If it was chosen just before, the request or its body ends with
/// an error, so no call starts.
async fn answer_request(
    mut request: Request<Incoming>,
    router: &Router,
    local: LocalAddress,
    slot: &Slot,
) -> Result<Response<impl HttpBody<Data = Bytes, Error = axum::Error> + use<>>, RequestError> {
    let connection = &slot.connection;
    if !connection.begin_request(request.body().is_end_stream()) {
        return Err(RequestError::Evicted);
    }
    let answering = Answering(connection.clone());
    request.extensions_mut().insert(local);
    let mut response = if slot.at_capacity && !PROBE_PATHS.contains(&request.uri().path()) {
        add_security_headers(ApiError::AtCapacity.into_response())
    } else {
        let end = end_body(connection.clone());
        let request = request.map(|body| body.map_err(RequestError::from).with_trailers(end));
        let answer = router.clone().oneshot(request).await;
        answer.unwrap_or_else(|never: Infallible| match never {})
    };
    if slot.at_capacity || slot.connections.is_draining() {
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response.map(|body| {
        // The closure holds `answering` as long as the body exists.
        body.map_err(move |error| {
            let _ = &answering;
            error
        })
    }))
}

/// Follows the last byte of a request's body.
async fn end_body(connection: Arc<Connection>) -> Option<Result<HeaderMap, RequestError>> {
    (!connection.complete_request()).then_some(Err(RequestError::Evicted))
}

/// A request that is being answered. It ends when it is dropped with the answer's body. The
/// connection stays protected until the kernel has the last bytes.
struct Answering(Arc<Connection>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.record_answer();
    }
}
