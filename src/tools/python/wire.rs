//! Lines out of a pipe, in bounded memory.

use std::io;
use std::ops::Range;

use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Longest line. A worker keeps its own, shorter bound; one that breaks this is out of its mind.
const LONGEST: usize = 16 << 20;
/// Room that is made for each read.
const CHUNK: usize = 16 << 10;
/// A buffer that has grown beyond this is given back after its line.
const KEPT: usize = 256 << 10;

/// Reads lines. Dropping a future of it loses nothing.
pub(super) struct LineReader<R> {
    from: R,
    buffer: Vec<u8>,
    /// The line that was read last.
    line: Range<usize>,
    /// Where the next line begins.
    start: usize,
    /// Up to here there is no line's end.
    looked: usize,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, buffer: Vec::new(), line: 0..0, start: 0, looked: 0 }
    }

    /// Reads the next line; false when the other side has closed, whatever it had begun.
    ///
    /// # Errors
    /// As the pipe says; `FileTooLarge` for a line that is too long.
    pub(super) async fn advance(&mut self) -> io::Result<bool> {
        let end = loop {
            if let Some(at) = self.buffer[self.looked..].iter().position(|&byte| byte == b'\n') {
                break self.looked + at;
            }
            self.make_room();
            if self.buffer.len() > LONGEST {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            self.buffer.reserve(CHUNK);
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return Ok(false);
            }
        };
        self.line = self.start..end;
        (self.start, self.looked) = (end + 1, end + 1);
        Ok(true)
    }

    /// The same with what is there already; `None`: no whole line yet.
    pub(super) fn advance_now(&mut self) -> Option<io::Result<bool>> {
        self.advance().now_or_never()
    }

    /// The line that was read last, without its end.
    pub(super) fn line(&self) -> &[u8] {
        &self.buffer[self.line.clone()]
    }

    /// The line that was read last is not needed any more, nor the room that a long one took.
    pub(super) fn let_go(&mut self) {
        self.make_room();
    }

    /// Nothing that was looked at is needed any more, but for a line that has only begun.
    fn make_room(&mut self) {
        self.line = 0..0;
        self.buffer.drain(..self.start);
        if self.buffer.is_empty() {
            self.buffer.shrink_to(KEPT);
        }
        (self.start, self.looked) = (0, self.buffer.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_come_whole_however_they_were_written() {
        let long = "x".repeat(100_000);
        let text = format!("one\n\n{long}\nthree\nno end");
        for chunk in [1, 7, 100_000] {
            let mut reader = pipe(text.as_bytes(), chunk);
            let mut lines = Vec::new();
            while reader.advance().await.unwrap() {
                lines.push(String::from_utf8(reader.line().to_vec()).unwrap());
            }
            assert_eq!(lines, ["one", "", &long, "three"]);
            assert!(matches!(reader.advance_now(), Some(Ok(false))));
        }
    }

    #[tokio::test]
    async fn a_line_without_end_is_not_waited_for() {
        let mut reader = LineReader::new(tokio::io::repeat(b'x'));
        assert_eq!(reader.advance().await.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(reader.buffer.capacity() < 4 * LONGEST);
    }

    /// A pipe in which `chunk` bytes have room.
    fn pipe(text: &[u8], chunk: usize) -> LineReader<tokio::io::DuplexStream> {
        let (mut to, from) = tokio::io::duplex(chunk);
        let text = text.to_vec();
        tokio::spawn(async move { tokio::io::AsyncWriteExt::write_all(&mut to, &text).await.unwrap() });
        LineReader::new(from)
    }
}
