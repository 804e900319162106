//! Removes the ids of events, because streams cannot be resumed.
//!
//! MCP (2025-11-25, Transports, Resumability and Redelivery) lets a server number its events. A
//! client whose stream broke off may then request the events that it missed. rmcp implements this,
//! with three faults:
//!
//! - A resumed stream starts with events that the client has seen already.
//! - It is empty if the call has ended.
//! - Two events may have the same number.
//!
//! So events have no ids here, and no client relies on them. An answer goes to the stream of its
//! request. A client that listens again gets the latest notifications again, whether it missed them
//! or not.

use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError,
};
use rmcp::transport::streamable_http_server::session::{
    ServerSseMessage, SessionId, SessionManager,
};

/// rmcp's session manager, with events that have no ids.
#[derive(Clone)]
pub(super) struct WithoutEventIds(pub(super) Arc<LocalSessionManager>);

fn strip_event_id(mut event: ServerSseMessage) -> ServerSseMessage {
    event.event_id = None;
    event
}

impl SessionManager for WithoutEventIds {
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
        Ok(self.0.create_stream(id, message).await?.map(strip_event_id))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        self.0.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self
            .0
            .create_standalone_stream(id)
            .await?
            .map(strip_event_id))
    }

    /// No client was given an event id. A client that sends one all the same gets a new listening
    /// stream.
    async fn resume(
        &self,
        id: &SessionId,
        _last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.create_standalone_stream(id).await
    }
}
