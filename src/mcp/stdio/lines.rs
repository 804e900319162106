//! Reads lines of bytes, up to a length.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::sources::mcp::json_rpc::IdScanner;

/// Reads lines. Reading is cancel-safe: if a read is dropped, its part of the line is kept for the
/// next read.
pub(super) struct LineReader<R> {
    read: BufReader<R>,
    line: Vec<u8>,
    max_length: usize,
    /// Set while the current line is too long. Its bytes are then scanned for an id, and not kept.
    oversized: Option<IdScanner>,
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InputLine {
    /// A line without its line feed.
    Complete(Vec<u8>),
    /// The line was too long. If it was a request, this is its id.
    TooLong(Option<Value>),
    /// The end of the input.
    End,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(super) fn new(read: R, max_length: usize) -> Self {
        Self {
            read: BufReader::new(read),
            line: Vec::new(),
            max_length,
            oversized: None,
        }
    }

    /// Reads the next line. The last one need not have a line feed.
    pub(super) async fn next_line(&mut self) -> InputLine {
        loop {
            let buffer = match self.read.fill_buf().await {
                Ok(buffer) => buffer,
                Err(error) => {
                    tracing::warn!(%error, "standard input cannot be read");
                    return InputLine::End;
                }
            };
            if buffer.is_empty() {
                return if self.line.is_empty() && self.oversized.is_none() {
                    InputLine::End
                } else {
                    self.finish_line()
                };
            }
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let part = &buffer[..end.unwrap_or(buffer.len())];
            match &mut self.oversized {
                Some(scan) => scan.feed(part),
                None if self.line.len() + part.len() > self.max_length => {
                    let mut scan = IdScanner::default();
                    scan.feed(&std::mem::take(&mut self.line));
                    scan.feed(part);
                    self.oversized = Some(scan);
                }
                None => self.line.extend_from_slice(part),
            }
            let used = part.len() + usize::from(end.is_some());
            self.read.consume(used);
            if end.is_some() {
                return self.finish_line();
            }
        }
    }

    fn finish_line(&mut self) -> InputLine {
        match self.oversized.take() {
            Some(scan) => InputLine::TooLong(scan.request_id()),
            None => InputLine::Complete(std::mem::take(&mut self.line)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio::io::AsyncWriteExt;

    use super::*;

    async fn read_all(text: &'static [u8], longest: usize) -> Vec<InputLine> {
        let mut lines = LineReader::new(io::Cursor::new(text), longest);
        let mut found = Vec::new();
        loop {
            match lines.next_line().await {
                InputLine::End => return found,
                line => found.push(line),
            }
        }
    }

    fn complete(text: &str) -> InputLine {
        InputLine::Complete(text.into())
    }

    #[tokio::test]
    async fn last_line_needs_no_line_feed() {
        assert_eq!(
            read_all(b"one\n\ntwo\r\nthree", 9).await,
            [
                complete("one"),
                complete(""),
                complete("two\r"),
                complete("three")
            ]
        );
        assert_eq!(read_all(b"", 9).await, []);
    }

    #[tokio::test]
    async fn oversized_line_is_skipped() {
        assert_eq!(
            read_all(b"12345\n123456\n1\n1234567", 5).await,
            [
                complete("12345"),
                InputLine::TooLong(None),
                complete("1"),
                InputLine::TooLong(None)
            ]
        );
    }

    #[tokio::test]
    async fn dropped_read_loses_no_bytes() {
        let (mut write, read) = tokio::io::duplex(64);
        let mut lines = LineReader::new(read, 64);
        write.write_all(b"first ").await.unwrap();
        tokio::select! {
            biased;
            line = lines.next_line() => panic!("{line:?} has no end yet"),
            () = std::future::ready(()) => {}
        }
        write.write_all(b"half\nnext").await.unwrap();
        assert_eq!(lines.next_line().await, complete("first half"));
    }
}
