//! The stream on which a server with sessions sends its own notifications, such as changed tools.
//! While the stream is not open, such notifications are lost. So each gap counts as a change.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use parking_lot::Mutex;
use rmcp::transport::streamable_http_client::SseError;
use rmcp_sse_stream::Sse;

use super::transport_adapter::SharedConnectionState;

/// Watches the notification stream of one connection.
#[derive(Clone, Default)]
pub(super) struct ServerEvents {
    connection_state: Arc<SharedConnectionState>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    was_open: bool,
    /// Id of the last event on the stream.
    last_event_id: Option<String>,
}

/// Dropped with the stream. Its end counts as a change.
struct OpenStream(Arc<SharedConnectionState>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.note_change();
    }
}

impl ServerEvents {
    /// For the connection with this state.
    pub(super) fn new(connection_state: &Arc<SharedConnectionState>) -> Self {
        Self {
            connection_state: connection_state.clone(),
            state: Arc::default(),
        }
    }

    /// Whether this request opens or resumes the notification stream. Broken response streams are
    /// resumed in the same way.
    pub(super) fn is_notification_stream(&self, after: Option<&str>) -> bool {
        after.is_none_or(|after| self.state.lock().last_event_id.as_deref() == Some(after))
    }

    /// Wraps the stream, which was opened for the first time or again.
    pub(super) fn watch_stream(
        &self,
        events: BoxStream<'static, Result<Sse, SseError>>,
    ) -> BoxStream<'static, Result<Sse, SseError>> {
        if std::mem::replace(&mut self.state.lock().was_open, true) {
            self.connection_state.note_change();
        }
        let (open, this) = (OpenStream(self.connection_state.clone()), self.clone());
        let record_id = move |event: &Result<Sse, SseError>| {
            let _open = &open;
            if let Ok(Sse { id: Some(id), .. }) = event {
                this.state.lock().last_event_id = Some(id.clone());
            }
        };
        events.inspect(record_id).boxed()
    }
}
