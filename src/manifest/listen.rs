//! The address to listen on, in the short forms that people write.

use std::net::SocketAddr;

/// The host of an address that is only a port. Other machines cannot reach it.
const DEFAULT_HOST: &str = "127.0.0.1";

/// Completes an address: a port alone (`7411` or `:7411`) is a port of this machine. A host may be
/// a name, such as `localhost`.
///
/// # Errors
/// A sentence that says what an address is.
pub fn complete_address(text: &str) -> Result<String, String> {
    let text = text.trim();
    let bare = text.strip_prefix(':').unwrap_or(text);
    if bare.parse::<u16>().is_ok() {
        return Ok(format!("{DEFAULT_HOST}:{bare}"));
    }
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let is_host = |host: &str| !host.is_empty() && !host.contains([':', '/', '[', ']', ' ', '@']);
    let is_complete = text.parse::<SocketAddr>().is_ok()
        || text
            .rsplit_once(':')
            .is_some_and(|(host, port)| is_host(host) && is_port(port));
    if is_complete {
        return Ok(text.to_owned());
    }
    Err(format!(
        "`{text}` is no address to listen on: write a port such as 7411, or a host and a port such as \
         {DEFAULT_HOST}:7411 or [::1]:7411"
    ))
}

/// Whether an address is reachable from this machine only.
pub fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_alone_are_loopback() {
        for (text, expected) in [
            ("7411", "127.0.0.1:7411"),
            (":7411", "127.0.0.1:7411"),
            ("0", "127.0.0.1:0"),
            ("localhost:7411", "localhost:7411"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:7411", "[::1]:7411"),
        ] {
            assert_eq!(complete_address(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "nonsense",
            "localhost",
            "127.0.0.1",
            "::1:x",
            "70000",
            "host:70000",
            "http://localhost:7411",
        ] {
            let refused = complete_address(text).unwrap_err();
            assert!(
                refused.contains("write a port such as 7411") && refused.contains(text),
                "{refused}"
            );
        }
    }
}
