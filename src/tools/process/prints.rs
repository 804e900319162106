//! Hands the standard error of a long-lived program to the log.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::lines::{Line, Lines};
use crate::call::{Redact, Torn, shorten};
use crate::secrets::Redactor;

/// The longest line in the log, in bytes.
const LONGEST: usize = 4 << 10;
/// Lines in the log per second. Operators read the log later, and it should contain a whole traceback.
const MOST: u32 = 200;
/// Bytes in the log per second, after which no further line is logged. A program that never stops printing writes at
/// most about 5 GB a day.
const MOST_BYTES: usize = 64 << 10;
/// The number of last lines that are kept. They explain why a program did not start.
const KEPT: usize = 5;
/// How long to read on after the program has ended. The pipe closes then, unless a process that the program started
/// still has it open.
const GRACE: Duration = Duration::from_secs(2);

/// The reader of one program's standard error. It is dropped with the program; what the pipe contains then is still
/// handed on.
pub(in crate::tools) struct Prints {
    last: Arc<Mutex<VecDeque<String>>>,
    ended: CancellationToken,
    _gone: DropGuard,
}

impl Prints {
    /// Hands each line from the pipe to `tell`, without secrets, and with the number of lines that were skipped
    /// before it, if any.
    pub(in crate::tools) fn follow(
        mut from: ChildStderr,
        redactor: Arc<Redactor>,
        tell: impl Fn(&str, Option<u64>) + Send + Sync + 'static,
    ) -> Self {
        let last = Arc::new(Mutex::default());
        let (gone, ended) = (CancellationToken::new(), CancellationToken::new());
        let prints = Self { last: last.clone(), ended: ended.clone(), _gone: gone.clone().drop_guard() };
        tokio::spawn(async move {
            let _ended = ended.drop_guard();
            let mut lines = Lines::new(MOST, |line: Line<'_>| {
                let text = clean(line.text, line.torn, &redactor);
                tell(&text, Some(line.missed).filter(|missed| *missed > 0));
                keep(&last, text);
            })
            .most_bytes(MOST_BYTES);
            let mut chunk = vec![0; 8 << 10];
            let mut leave = None;
            loop {
                let due = lines.due();
                let at = |time: Option<Instant>| sleep_until(time.unwrap_or_else(Instant::now));
                tokio::select! {
                    read = from.read(&mut chunk) => match read {
                        Ok(0) | Err(_) => break,
                        Ok(n) => lines.push(&chunk[..n]),
                    },
                    () = at(due), if due.is_some() => lines.release(),
                    () = gone.cancelled(), if leave.is_none() => leave = Some(Instant::now() + GRACE),
                    () = at(leave), if leave.is_some() => break,
                }
            }
            lines.end();
        });
        prints
    }

    /// The last lines. Waits until the pipe is closed, but not for long.
    pub(in crate::tools) async fn last_words(&self) -> String {
        let _ = tokio::time::timeout(GRACE, self.ended.cancelled()).await;
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        Vec::from_iter(last.iter().map(String::as_str)).join("; ")
    }
}

fn keep(last: &Mutex<VecDeque<String>>, line: String) {
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    if last.len() == KEPT {
        last.pop_front();
    }
    last.push_back(line);
}

/// The line as it may be shown. Secrets are removed before the line is cut, because half of a secret would not be
/// found.
pub(in crate::tools) fn clean(line: &str, torn: Torn, redactor: &Redactor) -> String {
    let mut line = redactor.excerpt(line, torn).into_owned();
    shorten(&mut line, LONGEST);
    line
}
