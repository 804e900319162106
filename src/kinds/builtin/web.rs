//! URLs from arguments, for tools that fetch them with the address policy and client of the kind
//! `http`.

use reqwest::{Method, Request, Response};
use url::{Host, Url};

use crate::call::ToolError;
use crate::kinds::http::address_policy::AddressPolicy;
use crate::kinds::http::client::HttpClient;
use crate::kinds::http::parse_listed_host;
use crate::kinds::{ConfigFault, HttpClients};

/// The most bytes of a URL: what the HTTP client can send (`http::Uri`).
const MAX_URL_BYTES: usize = 65_534;

/// The client and the permitted hosts, from `with.allow_hosts` and `with.allow_private`.
pub(super) struct WebAccess {
    client: HttpClient,
    hosts: Vec<Host>,
}

impl WebAccess {
    pub(super) fn new(
        allow_hosts: Option<&[String]>,
        allow_private: bool,
        clients: &HttpClients,
    ) -> Result<Self, ConfigFault> {
        let client = clients.get(AddressPolicy::new(allow_private, "with.allow_private"));
        let client = client.map_err(|message| ConfigFault::error(&["with"], message))?;
        let host = |(at, name): (usize, &String)| {
            parse_listed_host(name).map_err(|message| {
                ConfigFault::error(&["with", "allow_hosts", &at.to_string()], message)
            })
        };
        if allow_hosts.is_some_and(<[String]>::is_empty) {
            let message = "the list is empty, so no URL could be requested; leave it out for all public hosts";
            return Err(ConfigFault::error(&["with", "allow_hosts"], message));
        }
        let hosts = allow_hosts
            .unwrap_or_default()
            .iter()
            .enumerate()
            .map(host)
            .collect::<Result<_, _>>()?;
        Ok(Self { client, hosts })
    }

    /// Parses the argument `name` as a URL. The error is a sentence.
    pub(super) fn parse_url(&self, name: &str, text: &str) -> Result<Url, String> {
        let too_long = || format!("`{name}` is too long: a URL has at most {MAX_URL_BYTES} bytes.");
        if text.len() > MAX_URL_BYTES {
            return Err(too_long());
        }
        // `url` ignores or replaces these characters, and would then request another URL than the
        // author meant.
        let is_invalid_char = |c: char| c == '\\' || c.is_whitespace() || c.is_control();
        let url = match Url::parse(text) {
            Ok(url)
                if matches!(url.scheme(), "http" | "https") && !text.contains(is_invalid_char) =>
            {
                url
            }
            _ => {
                return Err(format!(
                    "`{name}` must be a full http or https URL such as https://example.com/page."
                ));
            }
        };
        // The URL is longer than the text if characters are percent-encoded.
        if url.as_str().len() > MAX_URL_BYTES {
            return Err(too_long());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(format!(
                "`{name}` must not contain a user name or password."
            ));
        }
        if url.port() == Some(0) {
            return Err(format!("`{name}` names port 0, which cannot be reached."));
        }
        let is_listed = |host: Host<&str>| self.hosts.iter().any(|hosts| *hosts == host.to_owned());
        if !self.hosts.is_empty() && !url.host().is_some_and(is_listed) {
            let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
            return Err(format!(
                "`{name}` must be on one of these hosts: {}.",
                hosts.join(", ")
            ));
        }
        Ok(url)
    }

    /// Sends a GET request and waits for the head of the response.
    pub(super) async fn get(&self, url: Url) -> Result<Response, ToolError> {
        self.client.send(Request::new(Method::GET, url)).await
    }
}
