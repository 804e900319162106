//! What we are to a server: a client that calls tools and can do nothing for it.

use rmcp::RoleClient;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientResult, ErrorCode, ErrorData, Implementation, ProtocolVersion,
    ServerNotification, ServerRequest,
};
use rmcp::service::{NotificationContext, RequestContext, Service};

/// See the module.
pub(super) struct Client;

impl Service<RoleClient> for Client {
    /// None comes so far: they are answered where they come in (`tap`).
    async fn handle_request(&self, _: ServerRequest, _: RequestContext<RoleClient>) -> Result<ClientResult, ErrorData> {
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "this client answers nothing but ping", None))
    }

    async fn handle_notification(
        &self,
        _: ServerNotification,
        _: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        // The version for `initialize`; where there is none each request says its own.
        ClientConfig::new(ClientCapabilities::default(), us)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}
