//! Accepts and serves connections, and stops without losing an answer.
//!
//! The accept loop is our own: `axum::serve` bounds neither the number of connections nor the size and time of headers.

mod acceptor;
mod connections;
mod exchange;
mod log_throttle;
mod socket;

use std::future::Future;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::acceptor::Acceptor;
use self::connections::Connections;
use self::log_throttle::LogThrottle;
use super::settings::{ServerSettings, connections};
use crate::in_flight::InFlightCalls;

/// How long requests on open connections are still answered after the last call has ended. Their calls are refused.
const LAST_ORDERS: Duration = Duration::from_millis(100);
/// How long to wait, in any case, for handshakes that started before new clients were kept out. Most take microseconds.
const HANDSHAKES: Duration = Duration::from_millis(5);
/// How long to wait until the last answers are written.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// How long clients have to close their connections after we have closed our side.
const CLOSE_TIME: Duration = Duration::from_millis(150);

/// Serves until `stop`, then shuts down in this order:
///
/// - For `settings.linger`, the service still serves calls, but is not ready. Connections are accepted all the time.
/// - New calls are refused. Running calls get `settings.drain`, less if `hurry` returns, and then are cancelled.
/// - The listener closes. Then `ending` is tripped, which ends open streams, and the last answers are written.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    running: InFlightCalls,
    settings: &ServerSettings,
    stop: impl Future<Output = ()>,
    hurry: impl Future<Output = ()>,
    ending: CancellationToken,
) {
    let connections = Connections::new(connections());
    let _sweep = AbortOnDropHandle::new(tokio::spawn(connections.clone().sweep()));
    let is_everywhere = listener.local_addr().is_ok_and(|address| address.ip().is_unspecified());
    let mut server =
        Server { is_everywhere, door: Acceptor::new(listener), router, connections, crowds: LogThrottle::default() };
    tokio::select! {
        () = server.take_in() => {}
        () = stop => {}
    }
    running.leave();
    server.connections.end_soon();
    tokio::select! {
        () = server.take_in() => {}
        () = running.end(settings.linger, settings.drain, hurry) => {}
    }
    server.close(ending).await;
}

struct Server {
    /// The service listens on all addresses.
    is_everywhere: bool,
    door: Acceptor,
    router: Router,
    connections: Connections,
    crowds: LogThrottle,
}

impl Server {
    /// Accepts connections. It never returns.
    async fn take_in(&mut self) {
        loop {
            let stream = self.door.next(&self.connections).await;
            self.seat(stream);
        }
    }

    fn seat(&mut self, stream: TcpStream) {
        let place = self.connections.admit();
        if place.as_ref().is_none_or(|place| place.crowded)
            && let Some(times) = self.crowds.due()
        {
            tracing::warn!(times, "connections were turned away: all others have requests under way");
        }
        // Without even an extra slot, the connection is closed without an answer.
        let Some(place) = place else { return };
        tokio::spawn(exchange::serve(stream, self.router.clone(), self.connections.clone(), place, self.is_everywhere));
    }

    /// Accepts the connections that wait already, answers for a moment more, then closes everything.
    ///
    /// The order prevents resets. First a filter keeps new clients out, and started handshakes complete. Then the queue
    /// of the listener is emptied, since closing would reset it. `ending` then ends the streams without a call.
    async fn close(mut self, ending: CancellationToken) {
        self.door.shut();
        let connections = self.connections.clone();
        let last_orders = async {
            sleep(HANDSHAKES).await;
            timeout(LAST_ORDERS, connections.gone()).await
        };
        tokio::select! {
            () = self.take_in() => {}
            _ = last_orders => {}
        }
        while let Some(stream) = self.door.waiting() {
            self.seat(stream);
        }
        drop(self.door);
        ending.cancel();
        let _ = timeout(ANSWER_TIME, self.connections.answered()).await;
        self.connections.finish();
        let _ = timeout(CLOSE_TIME, self.connections.gone()).await;
    }
}
