//! This service as a client: it calls tools, and passes forms of the server on to the caller of a
//! call.

use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitationCapability, FormElicitationCapability,
    Implementation, ProtocolVersion,
};

/// The SDK's handler for messages of a server.
pub(super) struct Client {
    /// The version that `initialize` offers. Without `initialize`, each request names its own
    /// version.
    pub version: ProtocolVersion,
}

/// The requests of a server do not come here: `transport_adapter` answers them before.
impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        let forms = ElicitationCapability::new().with_form(FormElicitationCapability::default());
        let capabilities = ClientCapabilities::builder()
            .enable_elicitation_with(forms)
            .build();
        ClientConfig::new(capabilities, us).with_protocol_version(self.version.clone())
    }
}
