//! Accepts and serves connections, and stops without losing an answer.
//!
//! The accept loop is our own: `axum::serve` bounds neither the number of connections nor the size
//! and time of headers.

mod accept_loop;
mod acceptor;
mod connections;
mod exchange;
mod log_throttle;
mod socket;

use std::future::Future;

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::accept_loop::Server;
use self::acceptor::Acceptor;
use self::connections::Connections;
use self::log_throttle::LogThrottle;
use super::limits::max_connections;
use crate::manifest::ServerSettings;
use crate::tracking::in_flight::InFlightCalls;

/// Serves until `stop`, then shuts down in this order:
///
/// - For `settings.linger`, the service still serves calls, but is not ready. Connections are
///   accepted all the time.
/// - New calls are refused. Running calls get `settings.drain`, less if `hurry` returns, and then
///   are cancelled.
/// - The listener closes. Then `end_streams` is tripped, which ends open streams, and the last
///   answers are written.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    running: InFlightCalls,
    settings: &ServerSettings,
    stop: impl Future<Output = ()>,
    hurry: impl Future<Output = ()>,
    end_streams: CancellationToken,
) {
    let connections = Connections::new(max_connections());
    let _sweep = AbortOnDropHandle::new(tokio::spawn(connections.clone().close_overdue()));
    let listens_everywhere = listener
        .local_addr()
        .is_ok_and(|address| address.ip().is_unspecified());
    let mut server = Server {
        listens_everywhere,
        acceptor: Acceptor::new(listener),
        router,
        connections,
        capacity_log: LogThrottle::default(),
    };
    tokio::select! {
        () = server.accept_connections() => {}
        () = stop => {}
    }
    running.start_draining();
    server.connections.start_draining();
    tokio::select! {
        () = server.accept_connections() => {}
        () = running.shut_down(settings.linger, settings.drain, hurry) => {}
    }
    server.close(end_streams).await;
}
