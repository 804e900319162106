//! Writes what a worker prints, and the tracebacks of its functions, to the log.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::process::ChildStderr;

use super::language::{Language, log_as};
use crate::call::{CutEnds, InvocationId, ToolContext, ToolName};
use crate::kinds::process;
use crate::secrets::Redactor;

/// The call under which output is logged.
pub(super) type LogOwner = (InvocationId, ToolName);
/// The current call of a worker, or its last one.
type Owner = Mutex<Option<LogOwner>>;

/// Logs the exception with which a function ended, as one record.
pub(super) fn log_traceback(language: Language, context: &ToolContext, traceback: &str) {
    let (id, tool) = (context.invocation_id, &context.tool);
    let traceback = context.excerpt(traceback.as_bytes(), CutEnds::NONE);
    log_as!(language, warn, invocation_id = %id, %tool, traceback, "the function ended with an exception");
}

/// The output of one worker. Dropped with the worker; what is in the pipe then is still logged.
pub(super) struct StderrLog {
    /// The call under which it is logged from now on.
    pub(super) owner: Arc<Owner>,
    reader: process::StderrLog,
}

impl StderrLog {
    /// Logs what comes out of the pipe, without secrets.
    pub(super) fn follow(
        stderr: ChildStderr,
        language: Language,
        module: Arc<str>,
        redactor: Arc<Redactor>,
    ) -> Self {
        let owner = Arc::new(Owner::default());
        let call = owner.clone();
        let reader = process::StderrLog::follow(stderr, redactor, move |line, missed| {
            let (id, tool) = call.lock().clone().unzip();
            let (id, tool) = (
                id.as_ref().map(tracing::field::display),
                tool.as_ref().map(tracing::field::display),
            );
            log_as!(
                language,
                info,
                module = &*module,
                invocation_id = id,
                tool,
                missed,
                "{line}"
            );
        });
        Self { owner, reader }
    }

    /// The last lines, after the pipe has closed. Waits only briefly for that.
    pub(super) async fn tail(&self) -> String {
        self.reader.stderr_tail(None).await
    }
}
