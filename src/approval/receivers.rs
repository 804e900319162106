//! The receivers of webhooks about calls that wait for approval.

use std::sync::Arc;

use url::Url;

use crate::access::public_url::PublicUrl;
use crate::access::webhook_secret::WebhookSecret;
use crate::call::InvocationId;

/// `approvals:` of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalNotices {
    /// The base of the links.
    pub public_url: PublicUrl,
    /// The receivers, with different names.
    pub receivers: Vec<Receiver>,
}

/// A receiver of webhooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receiver {
    /// The name, for the ledger and for logs.
    pub name: Arc<str>,
    /// The address for webhooks.
    pub url: Url,
    /// The secret that the receiver knows too.
    pub secret: WebhookSecret,
}

impl ApprovalNotices {
    /// The link that opens the page of a waiting call for one receiver.
    pub fn link(&self, receiver: &Receiver, call: InvocationId) -> String {
        let Receiver { name, secret, .. } = receiver;
        let token = secret.link_token(name, call);
        self.public_url.join(&format!(
            "approvals/{call}/decide?link={name}&token={token}"
        ))
    }

    /// The receiver that was sent this token for this call.
    pub fn find_receiver(&self, name: &str, token: &str, call: InvocationId) -> Option<&Receiver> {
        let receiver = self.receivers.iter().find(|one| *one.name == *name)?;
        let is_right = receiver.secret.is_link_token(token, name, call);
        is_right.then_some(receiver)
    }
}
