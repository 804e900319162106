//! Reads lines of bytes, up to a length.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::json_rpc::Scan;

/// Reads lines. Reading is cancel-safe: if a read is dropped, its part of the line is kept for the next read.
pub(super) struct LineReader<R> {
    read: BufReader<R>,
    line: Vec<u8>,
    longest: usize,
    /// Set while the current line is too long. Its bytes are then scanned for an id, and not kept.
    long: Option<Scan>,
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InputLine {
    /// A line without its line feed.
    Whole(Vec<u8>),
    /// The line was too long. If it was a request, this is its id.
    TooLong(Option<Value>),
    /// The end of the input.
    End,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(super) fn new(read: R, longest: usize) -> Self {
        Self { read: BufReader::new(read), line: Vec::new(), longest, long: None }
    }

    /// Reads the next line. The last one need not have a line feed.
    pub(super) async fn next(&mut self) -> InputLine {
        loop {
            let come = match self.read.fill_buf().await {
                Ok(come) => come,
                Err(error) => {
                    tracing::warn!(%error, "standard input cannot be read");
                    return InputLine::End;
                }
            };
            if come.is_empty() {
                return if self.line.is_empty() && self.long.is_none() { InputLine::End } else { self.ended() };
            }
            let end = come.iter().position(|byte| *byte == b'\n');
            let part = &come[..end.unwrap_or(come.len())];
            match &mut self.long {
                Some(scan) => scan.feed(part),
                None if self.line.len() + part.len() > self.longest => {
                    let mut scan = Scan::default();
                    scan.feed(&std::mem::take(&mut self.line));
                    scan.feed(part);
                    self.long = Some(scan);
                }
                None => self.line.extend_from_slice(part),
            }
            let used = part.len() + usize::from(end.is_some());
            self.read.consume(used);
            if end.is_some() {
                return self.ended();
            }
        }
    }

    fn ended(&mut self) -> InputLine {
        match self.long.take() {
            Some(scan) => InputLine::TooLong(scan.asks()),
            None => InputLine::Whole(std::mem::take(&mut self.line)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio::io::AsyncWriteExt;

    use super::*;

    async fn all(text: &'static [u8], longest: usize) -> Vec<InputLine> {
        let mut lines = LineReader::new(io::Cursor::new(text), longest);
        let mut found = Vec::new();
        loop {
            match lines.next().await {
                InputLine::End => return found,
                line => found.push(line),
            }
        }
    }

    fn whole(text: &str) -> InputLine {
        InputLine::Whole(text.into())
    }

    #[tokio::test]
    async fn lines_are_read_one_by_one_and_the_last_needs_no_end() {
        assert_eq!(all(b"one\n\ntwo\r\nthree", 9).await, [whole("one"), whole(""), whole("two\r"), whole("three")]);
        assert_eq!(all(b"", 9).await, []);
    }

    #[tokio::test]
    async fn one_that_is_too_long_is_left_out_and_the_next_is_read() {
        assert_eq!(
            all(b"12345\n123456\n1\n1234567", 5).await,
            [whole("12345"), InputLine::TooLong(None), whole("1"), InputLine::TooLong(None)]
        );
    }

    #[tokio::test]
    async fn a_read_that_is_given_up_loses_nothing() {
        let (mut write, read) = tokio::io::duplex(64);
        let mut lines = LineReader::new(read, 64);
        write.write_all(b"first ").await.unwrap();
        tokio::select! {
            biased;
            line = lines.next() => panic!("{line:?} has no end yet"),
            () = std::future::ready(()) => {}
        }
        write.write_all(b"half\nnext").await.unwrap();
        assert_eq!(lines.next().await, whole("first half"));
    }
}
