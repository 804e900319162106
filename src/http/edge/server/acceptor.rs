//! Accepts connections, and gives each a task.
//!
//! When the process has no free file handle, idle connections are closed, and accepting does not
//! spin.

use std::io;
use std::time::Duration;

use axum::Router;
use rustix::io::Errno;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use super::connections::Connections;
use super::exchange::serve_connection;

/// Pause after a failed accept. An immediate new attempt would only spin.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Pause after a failed accept for which idle connections were closed. Their handles are free soon.
const SHORT_RETRY_PAUSE: Duration = Duration::from_millis(5);
/// Idle connections closed per failed accept to get file handles.
const MAX_CLOSED_PER_FAILURE: usize = 8;
/// Connections that may wait to be accepted. With fewer, the kernel drops clients of a burst, and
/// they retry only a second later.
const BACKLOG: i32 = 4096;

pub(super) struct Acceptor {
    listener: TcpListener,
    /// The service listens on all addresses.
    listens_everywhere: bool,
    router: Router,
    connections: Connections,
    failures: LogThrottle,
    refusals: LogThrottle,
}

impl Acceptor {
    pub(super) fn new(listener: TcpListener, router: Router, connections: Connections) -> Self {
        // The runtime's own backlog is smaller. The system may reduce this one (listen(2),
        // somaxconn).
        if let Err(error) = SockRef::from(&listener).listen(BACKLOG) {
            tracing::debug!(%error, "the listen backlog cannot be raised");
        }
        let listens_everywhere = listener
            .local_addr()
            .is_ok_and(|address| address.ip().is_unspecified());
        Self {
            listener,
            listens_everywhere,
            router,
            connections,
            failures: LogThrottle::default(),
            refusals: LogThrottle::default(),
        }
    }

    /// Accepts connections. It never returns.
    pub(super) async fn accept_connections(&mut self) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => self.spawn_connection(stream),
                // The client gave up before it was accepted (accept(2)). This is not a fault of the
                // service.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => self.pause_after(&error).await,
            }
        }
    }

    async fn pause_after(&mut self, error: &io::Error) {
        let lacks_handles =
            [Some(Errno::MFILE), Some(Errno::NFILE)].contains(&Errno::from_io_error(error));
        let close_one = |_: &usize| self.connections.make_room();
        if lacks_handles && (0..MAX_CLOSED_PER_FAILURE).filter(close_one).count() > 0 {
            return sleep(SHORT_RETRY_PAUSE).await;
        }
        // Other parts of the process hold the handles. The clients wait in the kernel's queue.
        if let Some(times) = self.failures.count_event() {
            tracing::warn!(%error, times, "connections could not be accepted");
        }
        sleep(RETRY_PAUSE).await;
    }

    fn spawn_connection(&mut self, stream: TcpStream) {
        let slot = self.connections.admit();
        if slot.as_ref().is_none_or(|slot| slot.at_capacity)
            && let Some(times) = self.refusals.count_event()
        {
            tracing::warn!(
                times,
                "connections were refused: all others have requests in flight"
            );
        }
        // Without even an extra slot, the connection is closed without an answer.
        let Some(slot) = slot else { return };
        let (router, listens_everywhere) = (self.router.clone(), self.listens_everywhere);
        tokio::spawn(serve_connection(stream, router, listens_everywhere, slot));
    }

    /// Keeps new clients out, where the system can. Connections that wait can still be accepted.
    ///
    /// Closing the listener resets the connections that are complete but not accepted yet. Under
    /// load there is always one, however soon the close follows the last accept. A client that is
    /// kept out tries again a second later, and is refused if the listener is closed by then.
    pub(super) fn block_new_clients(&self) {
        #[cfg(target_os = "linux")]
        {
            // Classic BPF over the TCP header. The 14th byte has the flags: drop packets with SYN
            // and without ACK, let all others pass.
            let filter = [
                (0x30, 0, 13),
                (0x54, 0, 0x12),
                (0x15, 1, 0x02),
                (6, 0, 0),
                (6, 0, !0),
            ]
            .map(|(code, jump, value)| socket2::SockFilter::new(code, 0, jump, value));
            if let Err(error) = SockRef::from(&self.listener).attach_filter(&filter) {
                tracing::debug!(%error, "late connections may be reset");
            }
        }
    }

    /// Accepts the connections that wait already, and closes the listener.
    pub(super) fn close(mut self) {
        // This calls the system directly, because the runtime may not know yet of the latest
        // connections.
        while let Ok((socket, _)) = SockRef::from(&self.listener).accept() {
            let stream = socket
                .set_nonblocking(true)
                .and_then(|()| TcpStream::from_std(socket.into()));
            if let Ok(stream) = stream {
                self.spawn_connection(stream);
            }
        }
    }
}

/// Shortest time between two messages.
const MESSAGE_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct LogThrottle {
    unreported: u64,
    last_message: Option<Instant>,
}

impl LogThrottle {
    /// Counts one event. If a message is due, returns the number of events since the last message.
    pub(super) fn count_event(&mut self) -> Option<u64> {
        self.unreported += 1;
        let now = Instant::now();
        if self
            .last_message
            .is_some_and(|last| now.duration_since(last) < MESSAGE_INTERVAL)
        {
            return None;
        }
        self.last_message = Some(now);
        Some(std::mem::take(&mut self.unreported))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn frequent_events_are_logged_with_their_count() {
        let mut throttle = LogThrottle::default();
        assert_eq!(
            (
                throttle.count_event(),
                throttle.count_event(),
                throttle.count_event()
            ),
            (Some(1), None, None)
        );
        advance(MESSAGE_INTERVAL).await;
        assert_eq!(
            (throttle.count_event(), throttle.count_event()),
            (Some(3), None)
        );
    }
}
