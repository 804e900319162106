//! Reads lines from a pipe, in bounded memory.

use std::io;
use std::ops::Range;

use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Longest line, in bytes. A worker keeps a shorter bound of its own, so a longer line means that
/// it is broken.
const MAX_LINE_BYTES: usize = 16 << 20;
/// Bytes that are reserved for each read.
const READ_SIZE: usize = 16 << 10;
/// A larger buffer is shrunk to this size after its line.
const MAX_IDLE_BUFFER: usize = 256 << 10;

/// A reader of lines. Dropping a future of it loses no data.
pub(super) struct LineReader<R> {
    reader: R,
    buffer: Vec<u8>,
    /// The line that was read last.
    line: Range<usize>,
    /// Where the next line starts.
    start: usize,
    /// Up to here there is no line end.
    searched: usize,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(super) fn new(reader: R) -> Self {
        Self {
            reader,
            buffer: Vec::new(),
            line: 0..0,
            start: 0,
            searched: 0,
        }
    }

    /// Reads the next line. Returns false when the other side has closed, even in the middle of a
    /// line.
    ///
    /// # Errors
    /// Errors of the pipe; `FileTooLarge` for a line that is too long.
    pub(super) async fn advance(&mut self) -> io::Result<bool> {
        let end = loop {
            if let Some(at) = self.buffer[self.searched..]
                .iter()
                .position(|&byte| byte == b'\n')
            {
                break self.searched + at;
            }
            self.searched = self.buffer.len();
            self.release_line();
            if self.buffer.len() > MAX_LINE_BYTES {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            self.buffer.reserve(READ_SIZE);
            if self.reader.read_buf(&mut self.buffer).await? == 0 {
                return Ok(false);
            }
        };
        self.line = self.start..end;
        (self.start, self.searched) = (end + 1, end + 1);
        Ok(true)
    }

    /// Like [`advance`](Self::advance), with the data that is already there. `None`: not a whole
    /// line yet.
    pub(super) fn try_advance(&mut self) -> Option<io::Result<bool>> {
        self.advance().now_or_never()
    }

    /// The line that was read last, without its line end.
    pub(super) fn line(&self) -> &[u8] {
        &self.buffer[self.line.clone()]
    }

    /// Discards the line that was read last, and frees the memory that a long line took.
    pub(super) fn release_line(&mut self) {
        self.line = 0..0;
        self.buffer.drain(..self.start);
        if self.buffer.is_empty() {
            self.buffer.shrink_to(MAX_IDLE_BUFFER);
        }
        self.searched -= self.start;
        self.start = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_complete_for_any_chunk_size() {
        let long = "x".repeat(100_000);
        let text = format!("one\n\n{long}\nthree\nno end");
        for chunk in [1, 7, 100_000] {
            let mut reader = pipe(text.as_bytes(), chunk);
            let mut lines = Vec::new();
            while reader.advance().await.unwrap() {
                lines.push(String::from_utf8(reader.line().to_vec()).unwrap());
            }
            assert_eq!(lines, ["one", "", &long, "three"]);
            assert!(matches!(reader.try_advance(), Some(Ok(false))));
        }
    }

    #[tokio::test]
    async fn line_behind_a_released_one_is_found() {
        let mut reader = LineReader::new(&b"one\ntwo\nthree"[..]);
        assert!(reader.advance().await.unwrap());
        reader.release_line();
        assert!(matches!(reader.try_advance(), Some(Ok(true))));
        assert_eq!(reader.line(), b"two");
    }

    #[tokio::test]
    async fn endless_line_fails() {
        let mut reader = LineReader::new(tokio::io::repeat(b'x'));
        assert_eq!(
            reader.advance().await.unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
        assert!(reader.buffer.capacity() < 4 * MAX_LINE_BYTES);
    }

    /// A pipe that holds at most `chunk` bytes.
    fn pipe(text: &[u8], chunk: usize) -> LineReader<tokio::io::DuplexStream> {
        let (mut to, from) = tokio::io::duplex(chunk);
        let text = text.to_vec();
        tokio::spawn(async move {
            tokio::io::AsyncWriteExt::write_all(&mut to, &text)
                .await
                .unwrap();
        });
        LineReader::new(from)
    }
}
