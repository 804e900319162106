//! The server: takes connections in, and stops without losing anything.
//!
//! Our own accept loop rather than `axum::serve`, which bounds neither connections nor header blocks nor their time.

mod connections;
mod door;
mod exchange;
mod socket;
mod tally;

use std::future::Future;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::connections::Connections;
use self::door::Door;
use self::tally::Tally;
use super::settings::{ServerSettings, connections};
use crate::running::Running;

/// For requests that come on open connections when the calls have ended: refused, but answered.
const LAST_ORDERS: Duration = Duration::from_millis(100);
/// For connections whose first packet came before the door was shut: they are complete within microseconds on a machine's
/// own network, and this is also kept when no other connection is open.
const HANDSHAKES: Duration = Duration::from_millis(5);
/// For the last answers to leave their connections.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// For clients to close idle connections when we have closed our side.
const CLOSE_TIME: Duration = Duration::from_millis(150);

/// Serves until `stop`, then for `settings.linger` as before though not ready any more, then drains: new calls are
/// refused, running ones get `settings.drain` to finish and are cancelled after that. Connections are taken in and
/// answered until the last call has ended. `hurry` cuts the waiting for calls short. `ending` is tripped after that.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    running: Running,
    settings: &ServerSettings,
    stop: impl Future<Output = ()>,
    hurry: impl Future<Output = ()>,
    ending: CancellationToken,
) {
    let connections = Connections::new(connections());
    let _sweep = AbortOnDropHandle::new(tokio::spawn(connections.clone().sweep()));
    let is_everywhere = listener.local_addr().is_ok_and(|address| address.ip().is_unspecified());
    let mut server = Server { is_everywhere, door: Door::new(listener), router, connections, crowds: Tally::default() };
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
    /// It listens on all addresses.
    is_everywhere: bool,
    door: Door,
    router: Router,
    connections: Connections,
    crowds: Tally,
}

impl Server {
    /// Takes connections in for as long as it is polled.
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
        // Without even an extra place it is closed without a word.
        let Some(place) = place else { return };
        tokio::spawn(exchange::serve(stream, self.router.clone(), self.connections.clone(), place, self.is_everywhere));
    }

    /// Takes in who waits already, answers what still comes for a moment, then closes.
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
