//! The stream on which a server with sessions says what nobody has asked for, such as that its tools have changed. While it
//! is not open, nobody hears that.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use rmcp::transport::streamable_http_client::SseError;
use rmcp_sse_stream::Sse;

use super::tap::Line;

/// See the module.
#[derive(Clone, Default)]
pub(super) struct Unasked {
    line: Arc<Line>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    was_open: bool,
    /// Id of the last event on it.
    last: Option<String>,
}

/// Dropped with the stream.
struct Open(Arc<Line>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.has_changed();
    }
}

impl Unasked {
    /// On this line.
    pub(super) fn new(line: &Arc<Line>) -> Self {
        Self { line: line.clone(), state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a stream that goes on after that event is this one; answers that broke off are taken up again, too.
    pub(super) fn is_it(&self, after: Option<&str>) -> bool {
        after.is_none_or(|after| self.state().last.as_deref() == Some(after))
    }

    /// It is open, for the first time or again.
    pub(super) fn opened(
        &self,
        events: BoxStream<'static, Result<Sse, SseError>>,
    ) -> BoxStream<'static, Result<Sse, SseError>> {
        if std::mem::replace(&mut self.state().was_open, true) {
            self.line.has_changed();
        }
        let (open, this) = (Open(self.line.clone()), self.clone());
        let keep = move |event: &Result<Sse, SseError>| {
            let _open = &open;
            if let Ok(Sse { id: Some(id), .. }) = event {
                this.state().last = Some(id.clone());
            }
        };
        events.inspect(keep).boxed()
    }
}
