//! What a worker prints, on its way to the log.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::call::{InvocationId, ToolContext, ToolName};
use crate::secrets::Redactor;
use crate::tools::process::Lines;

/// Longest line in the log, in bytes.
const LONGEST: usize = 4 << 10;
/// Lines in the log each second: a person looks there later, and a traceback should be among them.
const MOST: u32 = 1000;
/// Lines that are kept to say why a worker never came up.
const KEPT: usize = 5;
/// After its worker has gone a pipe closes, unless something that it started holds it.
const GRACE: Duration = Duration::from_secs(2);

/// The prints of one worker. Dropped when the worker is; what is in the pipe then is still told.
pub(super) struct Prints {
    shared: Arc<Shared>,
    ended: CancellationToken,
    _gone: DropGuard,
}

#[derive(Default)]
struct Shared {
    /// The call that the worker has, or had last.
    call: Mutex<Option<(InvocationId, ToolName)>>,
    last: Mutex<VecDeque<String>>,
}

impl Prints {
    /// Tells the log what comes out of the pipe, without secrets.
    pub(super) fn follow(mut from: ChildStderr, module: Arc<str>, redactor: Arc<Redactor>) -> Self {
        let shared = Arc::new(Shared::default());
        let (gone, ended) = (CancellationToken::new(), CancellationToken::new());
        let prints = Self { shared: shared.clone(), ended: ended.clone(), _gone: gone.clone().drop_guard() };
        tokio::spawn(async move {
            let _ended = ended.drop_guard();
            let mut lines = Lines::new(MOST, |line: &str, missed| shared.tell(&module, clean(line, &redactor), missed));
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

    /// From here on the prints are this call's.
    pub(super) fn belong_to(&self, context: &ToolContext) {
        *self.shared.call.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((context.invocation_id, context.tool.clone()));
    }

    /// The last lines, once the pipe is closed; not waited for long.
    pub(super) async fn last_words(&self) -> String {
        let _ = tokio::time::timeout(GRACE, self.ended.cancelled()).await;
        let last = self.shared.last.lock().unwrap_or_else(PoisonError::into_inner);
        Vec::from_iter(last.iter().map(String::as_str)).join("; ")
    }
}

impl Shared {
    fn tell(&self, module: &str, line: String, missed: u64) {
        let call = self.call.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (id, tool) = call.unzip();
        let (id, tool) = (id.as_ref().map(tracing::field::display), tool.as_ref().map(tracing::field::display));
        let missed = Some(missed).filter(|missed| *missed > 0);
        tracing::info!(target: "toolcrib::python", module, invocation_id = id, tool, missed, "{line}");
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() == KEPT {
            last.pop_front();
        }
        last.push_back(line);
    }
}

/// A line as it may be shown: without secrets, then cut, since half a secret is not found any more.
pub(super) fn clean(line: &str, redactor: &Redactor) -> String {
    let mut line = Value::from(line);
    redactor.progress(&mut line);
    let Value::String(mut line) = line else { return String::new() };
    if line.len() > LONGEST {
        let end = line.floor_char_boundary(LONGEST);
        let rest = line.len() - end;
        line.truncate(end);
        line.push_str(&format!("[… {rest} bytes left out …]"));
    }
    line
}
