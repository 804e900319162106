//! Values of header fields. They may be secrets.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::header::HeaderValue;

/// A header value of visible ASCII. It is marked as sensitive to keep it out of logs, because it
/// may be a secret.
pub(super) fn parse_header_value(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text)
        .ok()
        .filter(|value| value.to_str().is_ok())?;
    value.set_sensitive(true);
    Some(value)
}

/// `Basic` and the two texts in base64 (RFC 7617).
pub(super) fn encode_credentials(name: &str, password: &str) -> Option<HeaderValue> {
    let encoded = BASE64_STANDARD.encode(format!("{name}:{password}"));
    parse_header_value(&format!("Basic {encoded}"))
}
