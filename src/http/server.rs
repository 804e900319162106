//! The accept loop: limits on the socket itself, and a stop that loses nothing.
//!
//! Our own rather than `axum::serve`, which sets neither hyper's timer (so its header timeout is off) nor a bound on
//! the header block or on connections.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tower::ServiceExt;

use super::guard::LocalAddress;
use super::settings::{CONNECTIONS, HEADER_BYTES, HEADER_FIELDS, HEADER_TIME};
use crate::running::Running;

/// Pause after a failed accept (no file handles left, say): trying at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// For cancelled calls to stop what they run and write their rows.
const CANCEL_TIME: Duration = Duration::from_secs(3);
/// For the last answers to leave their connections.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// Serves until `stop`, then drains: no new calls, running ones get `drain` to finish, then they are cancelled.
/// `hurry` cuts the waiting short.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    running: Running,
    drain: Duration,
    stop: impl Future<Output = ()>,
    hurry: impl Future<Output = ()>,
) {
    let connections = GracefulShutdown::new();
    tokio::select! {
        () = accept(&listener, router, &connections) => {}
        () = stop => {}
    }
    drop(listener);
    running.close();
    tracing::info!(calls = running.len(), "stopping: no new calls, waiting for running ones");
    let closed = connections.shutdown();
    tokio::select! {
        done = timeout(drain, running.drained()) => if done.is_err() {
            tracing::warn!(calls = running.len(), "the drain time is over: running calls are cancelled");
        },
        () = hurry => tracing::warn!(calls = running.len(), "told to hurry: running calls are cancelled"),
    }
    running.cancel_all();
    if timeout(CANCEL_TIME, running.drained()).await.is_err() {
        tracing::error!(calls = running.len(), "calls did not stop in time; the next start finds them `unknown`");
    }
    let _ = timeout(CLOSE_TIME, closed).await;
}

async fn accept(listener: &TcpListener, router: Router, connections: &GracefulShutdown) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                if let Some(connection) = connection(stream, &router, connections) {
                    tokio::spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn connection(
    stream: TcpStream,
    router: &Router,
    connections: &GracefulShutdown,
) -> Option<impl Future<Output = ()> + Send + 'static> {
    let local: SocketAddr = stream.local_addr().ok()?;
    // Answers are small and complete; waiting to fill a packet only adds latency.
    let _ = stream.set_nodelay(true);
    let service = router.clone().map_request(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(LocalAddress(local));
        request
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEADER_BYTES)
        .max_headers(HEADER_FIELDS)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let watched = connections.watch(connection);
    Some(async move {
        if let Err(error) = watched.await {
            tracing::debug!(%error, "a connection ended early");
        }
    })
}
