//! What a worker prints, on its way to the log.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::process::ChildStderr;

use crate::call::{InvocationId, ToolContext, ToolName};
use crate::secrets::Redactor;
use crate::tools::process;

/// The call that a worker has, or had last.
type Owner = Mutex<Option<(InvocationId, ToolName)>>;

/// The prints of one worker. Dropped when the worker is; what is in the pipe then is still told.
pub(super) struct Prints {
    owner: Arc<Owner>,
    prints: process::Prints,
}

impl Prints {
    /// Tells the log what comes out of the pipe, without secrets.
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

    /// From here on the prints are this call's.
    pub(super) fn belong_to(&self, context: &ToolContext) {
        *self.owner.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((context.invocation_id, context.tool.clone()));
    }

    /// The last lines, once the pipe is closed; not waited for long.
    pub(super) async fn last_words(&self) -> String {
        self.prints.last_words().await
    }
}
