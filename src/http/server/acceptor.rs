//! Accepts connections.
//!
//! When the process has no free file handle, idle connections are closed, and accepting does not
//! spin.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::connections::Connections;
use super::log_throttle::LogThrottle;

/// Pause after a failed accept. An immediate new attempt would only spin.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Connections that may wait to be accepted. With fewer, the kernel drops clients of a burst, and
/// they retry only a second later.
const BACKLOG: i32 = 4096;
/// Pause after a failed accept for which idle connections were closed.
const SHORT_RETRY_PAUSE: Duration = Duration::from_millis(5);
/// Idle connections closed per round to get file handles.
const MAX_CLOSED_PER_ROUND: usize = 8;

pub(super) struct Acceptor {
    listener: TcpListener,
    failures: LogThrottle,
}

impl Acceptor {
    pub(super) fn new(listener: TcpListener) -> Self {
        // The runtime's own backlog is smaller. The system may reduce this one (listen(2),
        // somaxconn).
        if let Err(error) = SockRef::from(&listener).listen(BACKLOG) {
            tracing::debug!(%error, "the listen backlog cannot be raised");
        }
        Self {
            listener,
            failures: LogThrottle::default(),
        }
    }

    /// Waits for the next connection.
    pub(super) async fn accept(&mut self, connections: &Connections) -> TcpStream {
        let mut made_room = false;
        loop {
            let error = match self.listener.accept().await {
                Ok((stream, _)) => return stream,
                Err(error) => error,
            };
            // The client gave up before it was accepted (accept(2)). This is not a fault of the
            // service.
            if error.kind() == io::ErrorKind::ConnectionAborted {
                continue;
            }
            if [Some(Errno::MFILE), Some(Errno::NFILE)].contains(&Errno::from_io_error(&error)) {
                // First close idle connections and accept again: their handles are free soon. If
                // that does not help at once, other parts of the process hold the handles, and the
                // waiting clients have to wait longer.
                if (0..MAX_CLOSED_PER_ROUND)
                    .map_while(|_| connections.make_room())
                    .count()
                    > 0
                    && !made_room
                {
                    made_room = true;
                    sleep(SHORT_RETRY_PAUSE).await;
                    continue;
                }
            }
            made_room = false;
            if let Some(times) = self.failures.count_event() {
                tracing::warn!(%error, times, "connections could not be accepted");
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Returns the next connection if one waits already. It calls the system directly, because the
    /// runtime may not know yet of the latest connections.
    pub(super) fn try_accept(&mut self) -> Option<TcpStream> {
        let (socket, _) = SockRef::from(&self.listener).accept().ok()?;
        socket.set_nonblocking(true).ok()?;
        TcpStream::from_std(socket.into()).ok()
    }
}
