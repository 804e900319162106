//! `http_get`: fetches a web page or an API's response. It uses the address policy, the client and
//! the response reader of the kind `http`.

use std::sync::Arc;

use async_trait::async_trait;
use reqwest::{Method, Request};
use serde::Deserialize;
use url::{Host, Url};

use super::arguments::{argument_faults, text_argument};
use crate::call::units::Size;
use crate::call::{Effect, JsonObject, ToolContext, ToolError};
use crate::kinds::http::address_policy::AddressPolicy;
use crate::kinds::http::client::{HttpClient, Response};
use crate::kinds::http::parse_listed_host;
use crate::kinds::http::response::ResponseReader;
use crate::kinds::{
    ConfigFault, HttpClients, Runner, RunnerTraits, Tool, ToolOutcome, ValueFault, Values,
};

const DESCRIPTION: &str = "Fetches one http or https URL with a GET request and returns the response: pages and \
     other text as text, JSON as data, pictures, sound and documents as such. Use it when you know the exact URL of a page, file \
     or API and need what is there now. It does not search, log in, run scripts, follow redirects or reach private \
     networks, and long texts are cut.";

/// `with:`.
#[derive(Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// The only hosts that may be reached. Default: all public hosts.
    #[schemars(extend("examples" = [["example.com"]]))]
    allow_hosts: Option<Vec<String>>,
    /// Allows private and loopback addresses. Metadata addresses are never allowed.
    #[serde(default)]
    #[schemars(extend("examples" = [true]))]
    allow_private: bool,
    /// Longest response that is read, at most 4MiB.
    #[schemars(extend("examples" = ["64KiB"]), extend("default" = "256KiB"))]
    max_bytes: Option<Size>,
}

pub(super) fn tool(name: &str, config: Config, clients: &HttpClients) -> Result<Tool, ConfigFault> {
    let reading = ResponseReader::new(config.max_bytes, "with.max_bytes");
    let reading = reading.map_err(|message| ConfigFault::error(&["with", "max_bytes"], message))?;
    let web = WebAccess::new(config.allow_hosts.as_deref(), config.allow_private, clients)?;
    let tool = Tool::new(name, DESCRIPTION)
        .param(
            "url",
            "string",
            "Full URL, beginning with http:// or https://, e.g. https://example.com/page",
        )
        .example(serde_json::json!({"url": "https://example.com/"}))
        .effect(Effect::Read);
    Ok(tool.with_runner(Arc::new(HttpGet {
        web,
        response_reader: reading,
    })))
}

struct HttpGet {
    web: WebAccess,
    response_reader: ResponseReader,
}

impl HttpGet {
    fn parse_url(&self, arguments: &JsonObject) -> Result<Url, String> {
        self.web.parse_url("url", text_argument(arguments, "url"))
    }
}

#[async_trait]
impl Runner for HttpGet {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> ToolOutcome {
        let url = self.parse_url(&arguments)?;
        let response = self.web.get(url).await?;
        self.response_reader.read_result(response, &context).await
    }

    fn traits(&self) -> RunnerTraits {
        RunnerTraits {
            has_one_target: false,
            ..RunnerTraits::default()
        }
    }

    fn max_output(&self) -> Option<usize> {
        self.response_reader.raised_cap()
    }

    fn value_faults(&self, values: Values<'_>) -> Vec<ValueFault> {
        argument_faults("url", self.parse_url(values.arguments))
    }
}

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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::call::ToolResult;
    use crate::kinds::http::tests::{json_object, ok_reply, start_server, test_context};

    fn build(with: Value) -> Result<Tool, ConfigFault> {
        tool(
            "http_get",
            serde_json::from_value(with).unwrap(),
            &HttpClients::default(),
        )
    }

    fn faults(tool: &Tool, url: Value) -> Vec<String> {
        let faults = tool
            .runner
            .value_faults(Values::from_arguments(&json_object(json!({"url": url}))));
        faults
            .iter()
            .map(|fault| fault.message().to_owned())
            .collect()
    }

    #[tokio::test]
    async fn page_is_fetched() {
        let mut server = start_server(ok_reply("content-type: text/html", "<h1>hi</h1>")).await;
        let tool = build(json!({"allow_private": true})).unwrap();
        let arguments =
            json_object(json!({"url": format!("http://{}/a%20b?c=d#part", server.host)}));
        assert_eq!(
            tool.runner.call(arguments, test_context().0).await,
            Ok(ToolResult::text("<h1>hi</h1>"))
        );
        assert!(
            server
                .requests
                .recv()
                .await
                .unwrap()
                .starts_with("GET /a%20b?c=d HTTP/1.1\r\n")
        );
    }

    #[tokio::test]
    async fn private_addresses_are_denied_by_default() {
        let mut server = start_server(ok_reply("x: y", "secret")).await;
        let tool = build(json!({})).unwrap();
        let error = tool
            .runner
            .call(
                json_object(json!({"url": format!("http://{}/", server.host)})),
                test_context().0,
            )
            .await;
        assert!(
            error
                .unwrap_err()
                .to_string()
                .ends_with("unless the manifest says `with.allow_private: true`")
        );
        assert!(server.requests.try_recv().is_err());
    }

    #[test]
    fn invalid_urls_are_faults() {
        let tool = build(json!({})).unwrap();
        for bad in [
            json!("example.com"),
            json!("ftp://example.com/"),
            json!("file:///etc/passwd"),
            json!("gopher://x/"),
            json!("https://user@example.com/"),
            json!("https://:pw@example.com/"),
            json!("http://a.example:0/"),
            json!("http://a.example:65536/"),
            json!("http:\\\\a.example\\"),
            json!("https://a.exa\nmple/"),
            json!("https://a.example/\t"),
            json!("http://[fe80::1%25eth0]/"),
            json!(""),
            json!(7),
        ] {
            assert_eq!(faults(&tool, bad.clone()).len(), 1, "{bad}");
        }
        assert_eq!(faults(&tool, json!("https://example.com/a?b=c")), [""; 0]);
    }

    #[test]
    fn only_listed_hosts_are_allowed() {
        let tool = build(json!({"allow_hosts": ["Docs.Example", "[2606:4700::1111]"]})).unwrap();
        for fine in [
            "https://docs.example:8443/x",
            "http://DOCS.example/",
            "http://[2606:4700:0::1111]/",
        ] {
            assert_eq!(faults(&tool, json!(fine)), [""; 0], "{fine}");
        }
        for bad in [
            "https://example/",
            "https://docs.example.evil/",
            "https://x.docs.example/",
            "http://docs.example./",
        ] {
            assert_eq!(
                faults(&tool, json!(bad)),
                ["`url` must be on one of these hosts: docs.example, [2606:4700::1111]."]
            );
        }
    }

    #[test]
    fn invalid_settings_are_faults() {
        for (with, path) in [
            (json!({"allow_hosts": []}), "with.allow_hosts"),
            (
                json!({"allow_hosts": ["a.example", "http://b"]}),
                "with.allow_hosts.1",
            ),
            (json!({"max_bytes": "5MiB"}), "with.max_bytes"),
            (json!({"max_bytes": "0B"}), "with.max_bytes"),
        ] {
            assert_eq!(
                build(with).err().map(|fault| fault.path.join(".")),
                Some(path.to_owned())
            );
        }
    }
}
