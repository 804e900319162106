//! One request to a receiver.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, redirect, retry};
use rustls::crypto::{CryptoProvider, ring};
use serde::Serialize;

use crate::approval::receivers::{ApprovalNotices, Receiver};
use crate::approval::request::ApprovalRequest;
use crate::call::{Clock, Effect, InvocationId, JsonObject};
use crate::ledger::ApprovalRow;

/// Time for one request. Standard Webhooks recommends 15 to 30 seconds.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Sends webhooks.
pub(super) struct Sender {
    pub(super) notices: Arc<ApprovalNotices>,
    client: Client,
    clock: Clock,
}

/// The body of a webhook.
#[derive(Serialize)]
struct Webhook<'a> {
    r#type: &'static str,
    timestamp: Timestamp,
    data: WaitingCall<'a>,
}

/// What the receiver learns about the call.
#[derive(Serialize)]
struct WaitingCall<'a> {
    invocation_id: InvocationId,
    tool: &'a str,
    caller: &'a str,
    run_id: Option<Arc<str>>,
    tool_use_id: Option<Arc<str>>,
    effect: Option<Effect>,
    /// Null if the arguments must not be stored.
    arguments: Option<JsonObject>,
    message: Option<Arc<str>>,
    requested_at: Timestamp,
    expires_at: Timestamp,
    /// Opens the page on which a person decides.
    link: String,
}

impl Sender {
    /// Makes a sender.
    ///
    /// # Errors
    /// The HTTP client cannot be made.
    pub(super) fn new(notices: Arc<ApprovalNotices>, clock: Clock) -> Result<Self, reqwest::Error> {
        if CryptoProvider::get_default().is_none() {
            // This fails only if another thread was faster, and then a provider is installed too.
            let _ = ring::default_provider().install_default();
        }
        let builder = || {
            Client::builder()
                .user_agent(concat!("toolcrib/", env!("CARGO_PKG_VERSION")))
                .redirect(redirect::Policy::none())
                .retry(retry::never())
                .timeout(TIMEOUT)
        };
        // An image without CA certificates can still use plain HTTP.
        let client = builder()
            .build()
            .or_else(|_| builder().tls_certs_only([]).build())?;
        Ok(Self {
            notices,
            client,
            clock,
        })
    }

    /// Sends the webhook of a waiting call to a receiver. The id is the same for each attempt, so
    /// that the receiver can ignore a repetition.
    ///
    /// # Errors
    /// Why the receiver does not have the webhook, without its URL.
    pub(super) async fn send(&self, receiver: &Receiver, row: &ApprovalRow) -> Result<(), String> {
        let body = self.body(receiver, row);
        let id = format!("msg_{}", row.invocation);
        let timestamp = self.clock.now().as_second();
        let sent = self
            .client
            .post(receiver.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", &id)
            .header("webhook-timestamp", timestamp)
            .header(
                "webhook-signature",
                receiver.secret.sign(&id, timestamp, &body),
            )
            .body(body)
            .send()
            .await;
        match sent {
            Ok(answer) if answer.status().is_success() => Ok(()),
            Ok(answer) => Err(format!("status {}", answer.status())),
            Err(error) if error.is_timeout() => Err("no answer in time".into()),
            Err(error) => {
                let error = error.without_url();
                let mut cause: &dyn std::error::Error = &error;
                while let Some(source) = cause.source() {
                    cause = source;
                }
                Err(cause.to_string())
            }
        }
    }

    fn body(&self, receiver: &Receiver, row: &ApprovalRow) -> String {
        let request = ApprovalRequest::from_row(row);
        let shown = request.as_ref();
        let webhook = Webhook {
            r#type: "approval.waiting",
            timestamp: row.requested_at,
            data: WaitingCall {
                invocation_id: row.invocation,
                tool: &row.tool,
                caller: &row.caller,
                run_id: shown.and_then(|request| request.run_id.clone()),
                tool_use_id: shown.and_then(|request| request.tool_use_id.clone()),
                effect: shown.map(|request| request.effect),
                message: shown.and_then(|request| request.message.clone()),
                arguments: request.and_then(|request| request.arguments),
                requested_at: row.requested_at,
                expires_at: row.expires_at,
                link: self.notices.link(receiver, row.invocation),
            },
        };
        // Serialization cannot fail: all keys are texts.
        serde_json::to_string(&webhook).unwrap_or_default()
    }
}
