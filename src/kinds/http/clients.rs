//! Shares HTTP clients among the tools that are built together.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::address_policy::AddressPolicy;
use super::auth::TokenSources;
use super::client::HttpClient;
use super::own_ports::OwnPorts;

/// The clients of the tools that are built together. Tools with equal address policies share one
/// client, and with it the connections and the CA certificates, which are then read from the system
/// only once.
#[derive(Default)]
pub struct HttpClients {
    by_policy: Mutex<HashMap<AddressPolicy, HttpClient>>,
    own_ports: OwnPorts,
    /// Where the tools get access tokens from.
    pub(super) token_sources: TokenSources,
}

impl HttpClients {
    /// Clients of a service that listens, or will listen, at these ports, and that has these token
    /// sources.
    pub fn new(own_ports: OwnPorts, token_sources: TokenSources) -> Self {
        Self {
            by_policy: Mutex::default(),
            own_ports,
            token_sources,
        }
    }

    /// The client with this policy, built on first use.
    pub(crate) fn get(&self, policy: AddressPolicy) -> HttpClient {
        let build = || HttpClient::new(policy, self.own_ports.clone());
        let mut clients = self.by_policy.lock();
        clients.entry(policy).or_insert_with(build).clone()
    }
}
