//! The address at which people and clients reach the service.

use url::{Position, Url};

/// The base of all links to the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl(Url);

impl PublicUrl {
    /// Reads a base URL.
    ///
    /// # Errors
    /// What is expected instead.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "an http or https URL without `?`, `#` and user is expected, such as https://tools.example.com";
        let mut url = Url::parse(text).map_err(|_| EXPECTED)?;
        let is_plain = matches!(url.scheme(), "http" | "https")
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        if !is_plain {
            return Err(EXPECTED);
        }
        let folder = format!("{}/", url.path().trim_end_matches('/'));
        url.set_path(&folder);
        Ok(Self(url))
    }

    /// The URL of a path of the service, such as `approvals/1?name=a`.
    pub fn join(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }

    /// Host and port, as in a `Host` header.
    pub fn authority(&self) -> &str {
        &self.0[Position::BeforeHost..Position::AfterPort]
    }

    /// The `Origin` of the service's pages.
    pub fn origin(&self) -> String {
        self.0.origin().ascii_serialization()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_the_base_is_kept() {
        for base in ["https://a.test:8443/tools", "https://a.test:8443/tools/"] {
            let url = PublicUrl::parse(base).unwrap();
            assert_eq!(url.join("x/1?y=2"), "https://a.test:8443/tools/x/1?y=2");
            assert_eq!(url.authority(), "a.test:8443");
            assert_eq!(url.origin(), "https://a.test:8443");
        }
        let plain = PublicUrl::parse("HTTP://A.test:80").unwrap();
        assert_eq!(
            (plain.authority(), plain.origin().as_str()),
            ("a.test", "http://a.test")
        );
    }

    #[test]
    fn only_a_base_is_accepted() {
        for text in [
            "a.test",
            "ftp://a.test",
            "https://a.test/?x=1",
            "https://a.test/#x",
            "https://me@a.test",
            "file:///x",
        ] {
            assert!(PublicUrl::parse(text).is_err(), "{text}");
        }
    }
}
