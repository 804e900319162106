//! Serves one connection.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::response::IntoResponse;
use axum::{BoxError, Router};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::ServiceExt;

use super::connections::{CloseCommand, Connection, ConnectionGuard, Connections};
use super::socket::Socket;
use crate::http::guard::{LocalAddress, add_security_headers};
use crate::http::limits::{HEADER_BYTES, HEADER_FIELDS};
use crate::http::problem::ApiError;

/// Paths that are also answered on an extra connection, when all slots have requests in flight.
const PROBE_PATHS: [&str; 3] = ["/livez", "/readyz", "/metrics"];

/// The connection was chosen to make room just before its request was complete.
#[derive(Debug, thiserror::Error)]
#[error("closed to make room for another connection")]
struct Evicted;

/// Serves a connection until one side ends it. `listens_everywhere`: the service listens on all
/// addresses.
pub(super) async fn serve_connection(
    stream: TcpStream,
    router: Router,
    connections: Connections,
    guard: ConnectionGuard,
    listens_everywhere: bool,
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
    let connection = guard.connection.clone();
    let at_capacity = guard.at_capacity;
    let service = service_fn(|mut request: hyper::Request<Incoming>| {
        let may_start = connection.begin_request(request.is_end_stream());
        request.extensions_mut().insert(local);
        let refused = at_capacity && !PROBE_PATHS.contains(&request.uri().path());
        let request = request.map(|body| RequestBody {
            body,
            connection: connection.clone(),
        });
        let (answer, connections, connection) = (
            router.clone().oneshot(request),
            connections.clone(),
            connection.clone(),
        );
        async move {
            if !may_start {
                return Err(Evicted);
            }
            let mut response = match refused {
                true => add_security_headers(ApiError::AtCapacity.into_response()),
                false => answer
                    .await
                    .unwrap_or_else(|never: Infallible| match never {}),
            };
            if at_capacity || connections.is_draining() {
                response
                    .headers_mut()
                    .insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response.map(|body| AnswerBody { body, connection }))
        }
    });
    let socket = TokioIo::new(Socket::new(stream, guard.connection.clone()));
    let mut http = pin!(
        http1::Builder::new()
            // The table of connections keeps the times. hyper's timer would also count the idle
            // time between two requests, which has a longer limit.
            .header_read_timeout(None)
            .max_buf_size(HEADER_BYTES)
            .max_headers(HEADER_FIELDS)
            .serve_connection(socket, service)
    );
    loop {
        tokio::select! {
            biased;
            command = guard.connection.next_command() => match command {
                CloseCommand::AfterAnswer => http.as_mut().graceful_shutdown(),
                CloseCommand::Now => return,
            },
            result = http.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(%error, "a connection ended early");
                }
                return;
            }
        }
    }
}

/// A request's body. Its last byte makes the connection protected: from then on it is not closed
/// for another one. If it was chosen just before, the body ends with an error, so the request never
/// starts.
struct RequestBody {
    body: Incoming,
    connection: Arc<Connection>,
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let is_last = frame.is_none() || self.body.is_end_stream();
        if is_last && !self.connection.complete_request() {
            return Poll::Ready(Some(Err(Evicted.into())));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer's body. Dropping it ends the request. The connection stays protected until the kernel
/// has the last bytes.
struct AnswerBody {
    body: Body,
    connection: Arc<Connection>,
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        self.connection.record_answer();
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
