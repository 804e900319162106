//! A socket that reports its traffic to the connection table, and that closes without destroying
//! the last answer.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::connections::Connection;

pub(super) struct Socket {
    stream: TcpStream,
    connection: Arc<Connection>,
    /// Bytes of the next request that were read before the connection freed its buffers.
    unread: Bytes,
    read_was_pending: bool,
    blocked: bool,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, connection: Arc<Connection>) -> Self {
        Self {
            stream,
            connection,
            unread: Bytes::new(),
            read_was_pending: false,
            blocked: false,
        }
    }

    /// Gives back bytes that were read, but not used. The next read returns them first.
    pub(super) fn with_unread(mut self, bytes: Bytes) -> Self {
        self.unread = bytes;
        self
    }

    /// Waits until a read would return something.
    pub(super) async fn readable(&self) -> io::Result<()> {
        if self.unread.is_empty() {
            self.stream.readable().await?;
        }
        Ok(())
    }

    /// Reports whether the client reads its answer. hyper has no limit for writing, so the table
    /// closes clients that read nothing.
    fn report_write(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if self.blocked || written.is_pending() {
            self.blocked = written.is_pending();
            self.connection.set_blocked(self.blocked);
        }
        written
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let unread = self.unread.len().min(buf.remaining());
        let read = if unread > 0 {
            buf.put_slice(&self.unread.split_to(unread));
            Poll::Ready(Ok(()))
        } else {
            Pin::new(&mut self.stream).poll_read(cx, buf)
        };
        if buf.filled().len() > before {
            self.connection.record_bytes();
        } else if read.is_pending() && !self.read_was_pending {
            self.read_was_pending = true;
            self.connection.record_empty_read();
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.report_write(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.report_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.connection.record_flush();
        Poll::Ready(Ok(()))
    }

    /// Closes our side, then reads until the client has closed its side (RFC 9112, 9.6).
    ///
    /// A client that still sends its body when the answer is there would meet a reset. Many clients
    /// then report a broken connection, and never read the answer. The connection table bounds the
    /// time that this takes.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        self.connection.record_closing();
        let mut unread = [0; 4096];
        loop {
            let mut buf = ReadBuf::new(&mut unread);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buf))?;
            if buf.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
