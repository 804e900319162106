//! Accepts connections.
//!
//! When the process has no free file handle, accepting neither spins nor leaves clients without an answer.

use std::fs::File;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
#[cfg(target_os = "linux")]
use socket2::SockFilter;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::connections::Connections;
use super::log_throttle::LogThrottle;

/// Pause after a failed accept. An immediate new attempt would only spin.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Connections that may wait to be accepted. With fewer, the kernel drops clients of a burst, and they retry only a
/// second later.
const BACKLOG: i32 = 4096;
/// Pause after a failed accept for which idle connections were closed.
const SHORT_RETRY_PAUSE: Duration = Duration::from_millis(5);
/// Idle connections closed per round to get file handles.
const MAX_CLOSED_PER_ROUND: usize = 8;
/// Waiting connections accepted and closed per round while there are no file handles.
const MAX_REFUSED_PER_ROUND: usize = 64;

pub(super) struct Acceptor {
    listener: TcpListener,
    /// A file handle in reserve. When none is free, it is closed, so that a connection can be accepted and closed. The
    /// client then sees an end instead of waiting.
    spare_handle: Option<File>,
    failures: LogThrottle,
}

impl Acceptor {
    pub(super) fn new(listener: TcpListener) -> Self {
        // The runtime's own backlog is smaller. The system may reduce this one (listen(2), somaxconn).
        if let Err(error) = SockRef::from(&listener).listen(BACKLOG) {
            tracing::debug!(%error, "the listen backlog cannot be raised");
        }
        Self { listener, spare_handle: open_spare_handle(), failures: LogThrottle::default() }
    }

    /// Waits for the next connection.
    pub(super) async fn accept(&mut self, connections: &Connections) -> TcpStream {
        let mut made_room = false;
        loop {
            let error = match self.listener.accept().await {
                Ok((stream, _)) => {
                    if self.spare_handle.is_none() {
                        self.spare_handle = open_spare_handle();
                    }
                    return stream;
                }
                Err(error) => error,
            };
            // The client gave up before it was accepted (accept(2)). This is not a fault of the service.
            if error.kind() == io::ErrorKind::ConnectionAborted {
                continue;
            }
            let mut refused = 0;
            if [Some(Errno::MFILE), Some(Errno::NFILE)].contains(&Errno::from_io_error(&error)) {
                // First close idle connections and accept again: their handles are free soon. If that does not help at
                // once, other parts of the process hold the handles, so refuse the connections that wait.
                if (0..MAX_CLOSED_PER_ROUND).map_while(|_| connections.make_room()).count() > 0 && !made_room {
                    made_room = true;
                    sleep(SHORT_RETRY_PAUSE).await;
                    continue;
                }
                refused = self.refuse_waiting();
            }
            made_room = false;
            if let Some(times) = self.failures.count_event() {
                tracing::warn!(%error, times, refused, "connections could not be accepted");
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Returns the next connection if one waits already. It calls the system directly, because the runtime may not know
    /// yet of the latest connections.
    pub(super) fn try_accept(&mut self) -> Option<TcpStream> {
        let (socket, _) = SockRef::from(&self.listener).accept().ok()?;
        socket.set_nonblocking(true).ok()?;
        TcpStream::from_std(socket.into()).ok()
    }

    /// Keeps new clients out, where the system supports it, while connections that wait can still be accepted.
    ///
    /// Closing the socket at once would reset all connections that are complete but not accepted yet. So a filter first
    /// drops the first packet of each new client. Such a client retries a second later, and is refused if the socket is
    /// closed by then. Meanwhile the queue can be emptied.
    #[cfg(target_os = "linux")]
    pub(super) fn block_new_clients(&self) {
        // Classic BPF over the TCP header. The 14th byte has the flags: drop packets with SYN and without ACK.
        let filter = [
            SockFilter::new(0x30, 0, 0, 13),       // load the byte
            SockFilter::new(0x54, 0, 0, 0x12),     // keep SYN and ACK
            SockFilter::new(0x15, 0, 1, 0x02),     // SYN alone?
            SockFilter::new(0x06, 0, 0, 0),        // drop it
            SockFilter::new(0x06, 0, 0, u32::MAX), // let it pass
        ];
        if let Err(error) = SockRef::from(&self.listener).attach_filter(&filter) {
            tracing::debug!(%error, "new clients cannot be blocked: late connections may be reset");
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn block_new_clients(&self) {}

    /// Accepts and closes connections that wait but cannot be served. Returns their number.
    fn refuse_waiting(&mut self) -> usize {
        self.spare_handle = None;
        let refused = (0..MAX_REFUSED_PER_ROUND).map_while(|_| self.try_accept()).map(drop).count();
        self.spare_handle = open_spare_handle();
        refused
    }
}

fn open_spare_handle() -> Option<File> {
    File::open("/dev/null").ok()
}
