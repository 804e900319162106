//! This service as a client: it calls tools, and passes forms of the server on to the caller of a
//! call.

use rmcp::RoleClient;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientResult, ElicitationCapability, ErrorCode, ErrorData,
    FormElicitationCapability, Implementation, ProtocolVersion, ServerNotification, ServerRequest,
};
use rmcp::service::{NotificationContext, RequestContext, Service};

/// The SDK's handler for messages of a server.
pub(super) struct Client {
    /// The version that `initialize` offers. Without `initialize`, each request names its own
    /// version.
    pub version: ProtocolVersion,
}

impl Service<RoleClient> for Client {
    /// Never called so far, because `transport_adapter` answers such requests before the SDK gets
    /// them.
    async fn handle_request(
        &self,
        _: ServerRequest,
        _: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        Err(ErrorData::new(
            ErrorCode::METHOD_NOT_FOUND,
            "this client answers only `ping`",
            None,
        ))
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
        let forms = ElicitationCapability::new().with_form(FormElicitationCapability::default());
        let capabilities = ClientCapabilities::builder()
            .enable_elicitation_with(forms)
            .build();
        ClientConfig::new(capabilities, us).with_protocol_version(self.version.clone())
    }
}
