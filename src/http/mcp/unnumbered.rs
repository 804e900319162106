//! Sessions whose streams are not taken up again.
//!
//! MCP (2025-11-25, Transports, Resumability and Redelivery) lets a server number its events, so that a client whose stream broke
//! off may ask for what it missed. rmcp does, but what it sends then begins with what was seen already, or is an empty stream when the
//! call has ended, and the same number stands on two events. So events have none here, and nobody counts on more than there is: an
//! answer goes to the stream of its request, and who listens anew is told once more of the latest changes, missed or not.

use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, LocalSessionManagerError};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};

/// rmcp's own sessions, with events that have no ids.
#[derive(Clone)]
pub(super) struct Unnumbered(pub(super) Arc<LocalSessionManager>);

fn unnumbered(mut event: ServerSseMessage) -> ServerSseMessage {
    event.event_id = None;
    event
}

impl SessionManager for Unnumbered {
    type Error = LocalSessionManagerError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        self.0.create_session().await
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.0.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.0.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.0.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.0.create_stream(id, message).await?.map(unnumbered))
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        self.0.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.0.create_standalone_stream(id).await?.map(unnumbered))
    }

    /// Nobody was given an id; whoever has one all the same begins to listen.
    async fn resume(
        &self,
        id: &SessionId,
        _last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.create_standalone_stream(id).await
    }
}
