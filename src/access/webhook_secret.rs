//! The secret that a webhook receiver shares with the service.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::call::InvocationId;

/// Prefix of a secret, as in Standard Webhooks.
const PREFIX: &str = "whsec_";
/// Fewest and most bytes of a secret, as in Standard Webhooks.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Signs webhooks as in Standard Webhooks
/// (<https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>),
/// and makes the tokens of links.
#[derive(Clone, derive_more::Debug)]
#[debug("WebhookSecret")]
pub struct WebhookSecret(Hmac<Sha256>);

impl WebhookSecret {
    /// Reads `whsec_` and base64, or base64 alone.
    ///
    /// # Errors
    /// What is expected instead.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "a secret is `whsec_` and the base64 of 24 to 64 bytes; `openssl rand -base64 32` makes one";
        let encoded = text.strip_prefix(PREFIX).unwrap_or(text);
        let key = STANDARD.decode(encoded).map_err(|_| EXPECTED)?;
        if !SECRET_BYTES.contains(&key.len()) {
            return Err(EXPECTED);
        }
        Hmac::new_from_slice(&key).map(Self).map_err(|_| EXPECTED)
    }

    /// The value of the header `webhook-signature`. The timestamp is in Unix seconds.
    pub fn sign(&self, id: &str, timestamp: i64, body: &str) -> String {
        let text = format!("{id}.{timestamp}.{body}");
        format!(
            "v1,{}",
            STANDARD.encode(self.mac(&text).finalize().into_bytes())
        )
    }

    /// The token of the link with which the receiver of this name decides about a call.
    pub fn link_token(&self, receiver: &str, call: InvocationId) -> String {
        let mac = self.link_mac(receiver, call);
        URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())
    }

    /// Whether a token is the one of [`Self::link_token`]. The comparison takes the same time for
    /// each token.
    pub fn is_link_token(&self, token: &str, receiver: &str, call: InvocationId) -> bool {
        URL_SAFE_NO_PAD
            .decode(token)
            .is_ok_and(|token| self.link_mac(receiver, call).verify_slice(&token).is_ok())
    }

    fn link_mac(&self, receiver: &str, call: InvocationId) -> Hmac<Sha256> {
        // No signed webhook begins like this: a webhook's id has no space.
        self.mac(&format!("approval link {receiver} {call}"))
    }

    fn mac(&self, text: &str) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(text.as_bytes());
        mac
    }
}

impl PartialEq for WebhookSecret {
    fn eq(&self, other: &Self) -> bool {
        let probe = |secret: &Self| secret.mac("").finalize();
        probe(self) == probe(other)
    }
}

impl Eq for WebhookSecret {}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    /// The example of the Standard Webhooks libraries.
    #[test]
    fn signature_is_the_one_of_standard_webhooks() {
        let secret = WebhookSecret::parse(SECRET).unwrap();
        let body = r#"{"test": 2432232314}"#;
        assert_eq!(
            secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }

    #[test]
    fn token_holds_for_one_receiver_and_one_call() {
        let secret = WebhookSecret::parse(SECRET).unwrap();
        let (call, other) = (InvocationId::new(), InvocationId::new());
        let token = secret.link_token("chat", call);
        assert!(secret.is_link_token(&token, "chat", call));
        assert!(!secret.is_link_token(&token, "chat", other));
        assert!(!secret.is_link_token(&token, "mail", call));
        assert!(!secret.is_link_token("", "chat", call));
        assert!(!secret.is_link_token(&token[1..], "chat", call));
    }

    #[test]
    fn short_or_malformed_secret_is_refused() {
        for text in [
            "",
            "whsec_",
            "whsec_c2hvcnQ=",
            "not base64 at all, but long enough",
        ] {
            assert!(WebhookSecret::parse(text).is_err(), "{text}");
        }
    }
}
