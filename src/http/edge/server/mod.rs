//! Accepts and serves connections, and stops without losing an answer.
//!
//! The accept loop is our own: `axum::serve` bounds neither the number of connections nor the size
//! and time of headers.

mod acceptor;
mod connections;
mod exchange;
mod socket;

use std::future::Future;
use std::time::Duration;

use axum::Router;
use futures_util::FutureExt;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::acceptor::Acceptor;
use self::connections::Connections;
use super::limits::{possible_connections, warn_of_fewer_connections};
use crate::manifest::ServerSettings;
use crate::tracking::in_flight::InFlightCalls;

/// How long requests on open connections are still answered after the last call has ended. Their
/// calls are refused.
const REFUSAL_TIME: Duration = Duration::from_millis(100);
/// How long to wait until the last answers are written.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// Serves until `stop`, then shuts down in this order:
///
/// - For `settings.linger`, the service still serves calls, but is not ready. Connections are
///   accepted all the time.
/// - New calls are refused. Running calls get `settings.drain`, less if `hurry` returns, and then
///   are cancelled.
/// - New clients are kept out, and requests on open connections are answered for a moment more.
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
    warn_of_fewer_connections(settings.max_connections);
    let connections = Connections::new(possible_connections(settings.max_connections));
    let _sweep = AbortOnDropHandle::new(tokio::spawn(connections.clone().sweep().boxed()));
    let mut acceptor = Acceptor::new(listener, router, connections.clone());
    tokio::select! {
        () = acceptor.accept_connections() => {}
        () = stop => {}
    }
    running.start_draining();
    connections.start_draining();
    tokio::select! {
        () = acceptor.accept_connections() => {}
        () = running.shut_down(settings.linger, settings.drain, hurry) => {}
    }
    acceptor.block_new_clients();
    tokio::select! {
        () = acceptor.accept_connections() => {}
        _ = timeout(REFUSAL_TIME, connections.wait_until_closed()) => {}
    }
    acceptor.close();
    end_streams.cancel();
    let _ = timeout(ANSWER_TIME, connections.wait_until_answered()).await;
    connections.close_all();
}
