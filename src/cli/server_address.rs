//! The address of a running server, in the short forms that people write.

use url::Url;

use super::Failure;
use crate::manifest::complete_address;

/// Completes the URL of a server: `localhost:7435`, `:7435` and `7435` are http URLs.
///
/// # Errors
/// A usage error that says what a URL is.
pub(super) fn complete_url(text: &str) -> Result<String, Failure> {
    let text = text.trim();
    let full = match complete_address(text) {
        _ if text.contains("://") => text.to_owned(),
        Ok(address) => format!("http://{address}"),
        // A host without a port, or with a path.
        Err(_) => format!("http://{text}"),
    };
    let is_http = Url::parse(&full)
        .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if is_http {
        return Ok(full.trim_end_matches('/').to_owned());
    }
    Err(Failure::Usage(format!(
        "toolcrib: `{text}` is no address of a server: write a URL such as http://127.0.0.1:7411, or a host and a port \
         such as localhost:7411"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(text: &str) -> Result<String, String> {
        complete_url(text).map_err(|failure| match failure {
            Failure::Usage(message) => message,
            _ => String::new(),
        })
    }

    #[test]
    fn missing_schemes_are_http() {
        for (text, expected) in [
            ("localhost:7435", "http://localhost:7435"),
            ("7435", "http://127.0.0.1:7435"),
            (":7435", "http://127.0.0.1:7435"),
            ("crib.example", "http://crib.example"),
            ("crib.example/tools/", "http://crib.example/tools"),
            ("https://crib.example/a/", "https://crib.example/a"),
            ("[::1]:7435", "http://[::1]:7435"),
        ] {
            assert_eq!(completed(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn other_schemes_are_refused() {
        for text in ["ftp://crib.example", "", "http://", "a b"] {
            assert!(
                completed(text).is_err_and(|message| message.contains("write a URL such as")),
                "{text}"
            );
        }
    }
}
