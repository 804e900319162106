//! The listening socket: takes connections in, and neither spins nor falls silent when the process has no file handle
//! left for one.

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
use super::tally::Tally;

/// Pause after a failed accept: trying at once would only spin.
const PAUSE: Duration = Duration::from_millis(100);
/// Connections that may wait to be accepted: with fewer, clients of a burst are dropped and try again a second later.
const BACKLOG: i32 = 4096;
/// The same when idle connections were closed for it.
const SHORT_PAUSE: Duration = Duration::from_millis(5);
/// Idle connections closed in one go when there are no file handles.
const MISSED_AT_ONCE: usize = 8;
/// Connections closed in one go while there are no file handles.
const REFUSED_AT_ONCE: usize = 64;

/// See the module.
pub(super) struct Door {
    listener: TcpListener,
    /// A file handle to give up when there is none left: with it a connection can be accepted and closed, and its
    /// client sees an end instead of waiting.
    spare: Option<File>,
    failures: Tally,
}

impl Door {
    pub(super) fn new(listener: TcpListener) -> Self {
        // What the runtime asks for is less; the system has a bound of its own (listen(2), somaxconn).
        if let Err(error) = SockRef::from(&listener).listen(BACKLOG) {
            tracing::debug!(%error, "fewer connections than wished can wait to be accepted");
        }
        Self { listener, spare: spare(), failures: Tally::default() }
    }

    /// The next connection.
    pub(super) async fn next(&mut self, connections: &Connections) -> TcpStream {
        let mut again = false;
        loop {
            let error = match self.listener.accept().await {
                Ok((stream, _)) => {
                    if self.spare.is_none() {
                        self.spare = spare();
                    }
                    return stream;
                }
                Err(error) => error,
            };
            // The client thought better of it (accept(2)): no trouble of ours.
            if error.kind() == io::ErrorKind::ConnectionAborted {
                continue;
            }
            let mut refused = 0;
            if [Some(Errno::MFILE), Some(Errno::NFILE)].contains(&Errno::from_io_error(&error)) {
                // Whoever can be missed goes first, and the next try finds their handles.
                if (0..MISSED_AT_ONCE).map_while(|_| connections.make_room()).count() > 0 && !again {
                    again = true;
                    sleep(SHORT_PAUSE).await;
                    continue;
                }
                refused = self.refuse();
            }
            again = false;
            if let Some(times) = self.failures.due() {
                tracing::warn!(%error, times, refused, "connections could not be accepted");
            }
            sleep(PAUSE).await;
        }
    }

    /// The next connection, if one waits already. The system itself is asked: the runtime may not have heard yet of who
    /// came last.
    pub(super) fn waiting(&mut self) -> Option<TcpStream> {
        let (socket, _) = SockRef::from(&self.listener).accept().ok()?;
        socket.set_nonblocking(true).ok()?;
        TcpStream::from_std(socket.into()).ok()
    }

    /// Lets nobody begin to connect any more, where the system can do so: their first packet is dropped, they try again
    /// a second later, and are refused if the socket is closed by then. Closing it at once would reset those that are
    /// connected and not accepted yet; this way all of them can be accepted before it is closed.
    #[cfg(target_os = "linux")]
    pub(super) fn shut(&self) {
        // Classic BPF over the TCP header: drop what has SYN and not ACK among the flags, in the 14th byte.
        let filter = [
            SockFilter::new(0x30, 0, 0, 13),       // load the byte
            SockFilter::new(0x54, 0, 0, 0x12),     // keep SYN and ACK
            SockFilter::new(0x15, 0, 1, 0x02),     // SYN alone?
            SockFilter::new(0x06, 0, 0, 0),        // drop it
            SockFilter::new(0x06, 0, 0, u32::MAX), // let it pass
        ];
        if let Err(error) = SockRef::from(&self.listener).attach_filter(&filter) {
            tracing::debug!(%error, "connections that come in the last moment may be reset");
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn shut(&self) {}

    /// Closes connections that wait and cannot be served.
    fn refuse(&mut self) -> usize {
        self.spare = None;
        let refused = (0..REFUSED_AT_ONCE).map_while(|_| self.waiting()).map(drop).count();
        self.spare = spare();
        refused
    }
}

fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}
