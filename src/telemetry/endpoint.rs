//! The URL of a collector, and the protocol that it speaks.

use serde::Deserialize;
use url::Url;

/// The protocol of the collector.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    Deserialize,
    schemars::JsonSchema,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// OTLP over HTTP with protobuf bodies, usually at port 4318.
    #[default]
    Http,
    /// OTLP over gRPC, usually at port 4317.
    Grpc,
}

/// Reads the URL of a collector.
///
/// # Errors
/// What is wrong with it.
pub fn parse_endpoint(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("not a URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err("write http://HOST:PORT or https://HOST:PORT".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("put the password into `headers`, not into the URL".to_owned());
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_stay_out_of_urls() {
        assert!(parse_endpoint("http://me:secret@c:4318").is_err());
        assert!(parse_endpoint("ftp://c").is_err());
        assert!(parse_endpoint("c:4318").is_err());
    }
}
