//! The accept loop: takes connections while the service runs, and closes everything in the end.

use std::time::Duration;

use axum::Router;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::acceptor::Acceptor;
use super::connections::Connections;
use super::exchange;
use super::log_throttle::LogThrottle;

/// How long requests on open connections are still answered after the last call has ended. Their
/// calls are refused.
const REFUSAL_TIME: Duration = Duration::from_millis(100);
/// How long to wait until the last answers are written.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// How long clients have to close their connections after we have closed our side.
const CLOSE_TIME: Duration = Duration::from_millis(150);

/// Everything that connections share.
pub(super) struct Server {
    /// The service listens on all addresses.
    pub(super) listens_everywhere: bool,
    pub(super) acceptor: Acceptor,
    pub(super) router: Router,
    pub(super) connections: Connections,
    pub(super) capacity_log: LogThrottle,
}

impl Server {
    /// Accepts connections. It never returns.
    pub(super) async fn accept_connections(&mut self) {
        loop {
            let stream = self.acceptor.accept(&self.connections).await;
            self.spawn_connection(stream);
        }
    }

    fn spawn_connection(&mut self, stream: TcpStream) {
        let guard = self.connections.admit();
        if guard.as_ref().is_none_or(|guard| guard.at_capacity)
            && let Some(times) = self.capacity_log.count_event()
        {
            tracing::warn!(
                times,
                "connections were refused: all others have requests in flight"
            );
        }
        // Without even an extra slot, the connection is closed without an answer.
        let Some(guard) = guard else { return };
        tokio::spawn(exchange::serve_connection(
            stream,
            self.router.clone(),
            self.connections.clone(),
            guard,
            self.listens_everywhere,
        ));
    }

    /// Accepts the connections that wait already, answers for a moment more, then closes
    /// everything.
    ///
    /// The queue of the listener is emptied before it closes, since closing would reset the
    /// connections in it. `end_streams` then ends the streams without a call.
    pub(super) async fn close(mut self, end_streams: CancellationToken) {
        let connections = self.connections.clone();
        tokio::select! {
            () = self.accept_connections() => {}
            _ = timeout(REFUSAL_TIME, connections.wait_until_closed()) => {}
        }
        while let Some(stream) = self.acceptor.try_accept() {
            self.spawn_connection(stream);
        }
        drop(self.acceptor);
        end_streams.cancel();
        let _ = timeout(ANSWER_TIME, self.connections.wait_until_answered()).await;
        self.connections.finish_all();
        let _ = timeout(CLOSE_TIME, self.connections.wait_until_closed()).await;
    }
}
