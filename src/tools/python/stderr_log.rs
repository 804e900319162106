//! Writes what a worker prints to the log.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::process::ChildStderr;

use crate::call::{InvocationId, ToolContext, ToolName};
use crate::secrets::Redactor;
use crate::tools::process;

/// The current call of a worker, or its last one.
type Owner = Mutex<Option<(InvocationId, ToolName)>>;

/// The output of one worker. Dropped with the worker; what is in the pipe then is still logged.
pub(super) struct StderrLog {
    owner: Arc<Owner>,
    prints: process::Prints,
}

impl StderrLog {
    /// Logs what comes out of the pipe, without secrets.
    pub(super) fn follow(from: ChildStderr, module: Arc<str>, redactor: Arc<Redactor>) -> Self {
        let owner = Arc::new(Owner::default());
        let call = owner.clone();
        let prints = process::Prints::follow(from, redactor, move |line, missed| {
            let (id, tool) = call.lock().unwrap_or_else(PoisonError::into_inner).clone().unzip();
            let (id, tool) = (id.as_ref().map(tracing::field::display), tool.as_ref().map(tracing::field::display));
            tracing::info!(target: "toolcrib::python", module = &*module, invocation_id = id, tool, missed, "{line}");
        });
        Self { owner, prints }
    }

    /// From now on, logs the output under this call.
    pub(super) fn belong_to(&self, context: &ToolContext) {
        *self.owner.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((context.invocation_id, context.tool.clone()));
    }

    /// The last lines, after the pipe has closed. Waits only briefly for that.
    pub(super) async fn last_words(&self) -> String {
        self.prints.last_words().await
    }
}
