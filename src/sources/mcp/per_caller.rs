//! The parts of a URL server's requests that differ from caller to caller.
//!
//! A server may bind a session to the credentials that opened it. So each call has a connection of
//! its own, with the credentials of its caller.

use std::collections::{BTreeMap, BTreeSet};

use url::Url;

use crate::call::json::plain_text;
use crate::call::{CallerCredentials, JsonObject};
use crate::kinds::http::percent_encode;
use crate::kinds::literal::escape_for_template;
use crate::kinds::template::Template;
use crate::kinds::{Placeholder, Values};

/// The texts of a server's entry that refer to credentials of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerCaller {
    /// The URL, if it refers to a credential.
    pub url: Option<Template>,
    /// Header fields, with lower-case names.
    pub headers: BTreeMap<String, Template>,
    /// The credentials that list the tools. `None`: the listing has none.
    pub list_as: Option<CallerCredentials>,
}

impl PerCaller {
    /// A text with references to credentials. `None` if it has none.
    pub fn parse(text: &str) -> Option<Template> {
        // Braces have no meaning in an entry of a server.
        let template = Template::parse(&escape_for_template(text), |name| {
            Placeholder::Argument(name.to_owned())
        });
        template
            .ok()
            .filter(|template| template.as_literal().is_none())
    }

    /// The names of all credentials.
    pub fn credential_names(&self) -> Vec<String> {
        let placeholders = self
            .url
            .iter()
            .chain(self.headers.values())
            .flat_map(Template::placeholders);
        let names = placeholders.filter_map(|placeholder| match placeholder {
            Placeholder::Caller(name) => Some(name.clone()),
            Placeholder::Argument(_) | Placeholder::Context(_) => None,
        });
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The URL and the header fields with these credentials. Values are encoded, so they stay
    /// within their part of the URL. A header without its credential is left out. `url` is the URL
    /// without credentials, whose scheme, host and port are the only ones.
    pub(super) fn render(
        &self,
        url: &Url,
        credentials: Option<&CallerCredentials>,
    ) -> Result<(Url, Vec<(String, String)>), String> {
        let (arguments, context) = (JsonObject::new(), JsonObject::new());
        let values = Values {
            arguments: &arguments,
            context: &context,
            credentials,
        };
        let is_complete = |template: &&Template| {
            template
                .placeholders()
                .all(|name| values.get(name).is_some())
        };
        let headers = self
            .headers
            .iter()
            .filter(|(_, template)| is_complete(template));
        let headers = headers
            .map(|(name, template)| (name.clone(), template.render(values, plain_text)))
            .collect();
        let Some(template) = &self.url else {
            return Ok((url.clone(), headers));
        };
        let rendered = template.render(values, |value| percent_encode(&plain_text(value)));
        match Url::parse(&rendered) {
            Ok(rendered) if rendered.origin() == url.origin() && has_same_depth(&rendered, url) => {
                Ok((rendered, headers))
            }
            Ok(_) | Err(_) => Err("its URL is not valid with this caller's credentials".into()),
        }
    }
}

/// Whether the paths have the same number of segments. A value such as `..` would remove one.
fn has_same_depth(one: &Url, other: &Url) -> bool {
    let depth = |url: &Url| url.path_segments().map(Iterator::count);
    depth(one) == depth(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::literal::caller_reference;

    fn render(text: &str, value: &str) -> Result<String, String> {
        let parts = PerCaller {
            url: PerCaller::parse(text),
            headers: BTreeMap::new(),
            list_as: None,
        };
        let base = Url::parse(&text.replace(['\u{fdd3}', '\u{fdd4}'], "")).unwrap();
        let credentials = CallerCredentials::new([("T".to_owned(), value.to_owned())]);
        parts
            .render(&base, Some(&credentials))
            .map(|(url, _)| url.into())
    }

    #[test]
    fn credentials_stay_within_their_url_part() {
        let url = format!(
            "https://a.example/{}/mcp?key={}",
            caller_reference("T"),
            caller_reference("T")
        );
        assert_eq!(
            render(&url, "a/b?c&d#e").unwrap(),
            "https://a.example/a%2Fb%3Fc%26d%23e/mcp?key=a%2Fb%3Fc%26d%23e"
        );
        assert!(render(&url, "..").is_err() && render(&url, ".").is_err());
    }

    #[test]
    fn headers_without_credentials_are_left_out() {
        let template = PerCaller::parse(&format!("Bearer {}", caller_reference("T"))).unwrap();
        let parts = PerCaller {
            url: None,
            headers: BTreeMap::from([("x".to_owned(), template)]),
            list_as: None,
        };
        assert_eq!(parts.credential_names(), ["T"]);
        let url = Url::parse("https://a.example/mcp").unwrap();
        assert_eq!(parts.render(&url, None), Ok((url.clone(), Vec::new())));
        let credentials = CallerCredentials::new([("T".to_owned(), "{{ x }}".to_owned())]);
        assert_eq!(
            parts.render(&url, Some(&credentials)).unwrap().1,
            [("x".to_owned(), "Bearer {{ x }}".to_owned())]
        );
        assert_eq!(PerCaller::parse("Bearer {{ plain }}"), None);
    }
}
