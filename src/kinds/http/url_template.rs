//! The URL of a request: the URL of the manifest, with values in its path and query, and perhaps in
//! its host.
//!
//! The URL is split before it is filled in, and each value is encoded for its part. So a value
//! cannot extend into the next part. Scheme and port are fixed. The host is fixed, or one of a
//! list. The base is a URL that is parsed when the tool is built.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::Value;
use url::{Host, Position, Url};

use super::client::{HttpClient, NO_CA_CERTIFICATES};
use super::config::RequestConfig;
use super::fault_collector::FaultCollector;
use super::json_template::Pair;
use super::path_value::{self, InvalidPathValue, MAX_ENCODING_LAYERS, MAX_VALUE_BYTES};
use crate::call::json::plain_text;
use crate::call::{ToolError, Violation};
use crate::kinds::template::{Part, Template};
use crate::kinds::{Placeholder, ValueFault, Values};
use crate::sources::openapi::reader::Style;

/// All characters except the unreserved ones of RFC 3986.
const ENCODED_CHARS: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The longest URL that the HTTP client can send (`http::Uri`).
const LONGEST_URL: usize = 65_534;

const URL_KEY: &[&str] = &["request", "url"];

/// The URL of the manifest, with its placeholders.
pub(super) struct UrlTemplate {
    base: BaseUrl,
    path: Template,
    /// The start of every path: the literal text before the first placeholder, encoded.
    prefix: String,
    /// Path segments that contain a value beside other text. They are checked as a whole, because
    /// `.` and `..` may arise from several parts.
    mixed_segments: Vec<Template>,
    query: Template,
}

/// Scheme, host and port.
struct BaseUrl {
    /// The host, if it has a placeholder. Filled in, it must be one of `hosts`.
    template: Option<Template>,
    /// The hosts, each with its URL. They differ only in the host.
    hosts: Vec<(String, Url)>,
}

impl UrlTemplate {
    /// Reads `request.url` and `allow_hosts`, and adds their faults to `collector`.
    pub(super) fn parse(
        config: &RequestConfig,
        collector: &mut FaultCollector<'_>,
    ) -> Option<Self> {
        let template = collector.parse_template(&config.url, URL_KEY)?;
        let is_invalid_char = |c: char| c == '\\' || c.is_whitespace() || c.is_control();
        if template
            .parts()
            .iter()
            .any(|part| matches!(part, Part::Text(text) if text.contains(is_invalid_char)))
        {
            collector.error(
                URL_KEY,
                "white space, control characters and `\\` are not allowed in a URL",
            );
        }
        // A placeholder contains no character that separates the parts of a URL. So the raw text
        // can be split.
        let Some((scheme @ ("http" | "https"), rest)) = config.url.split_once("://") else {
            collector.error(
                URL_KEY,
                "the URL must begin with a literal http:// or https://",
            );
            return None;
        };
        if rest.contains('#') {
            collector.error(URL_KEY, "`#…` is never sent: leave it out");
        }
        let (rest, _) = rest.split_once('#').unwrap_or((rest, ""));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let mixed_segments = path
            .split('/')
            .filter_map(|text| parse_mixed_segment(text, collector))
            .collect();
        let path = Self::parse_path(path, collector);
        if template.styles().any(Style::makes_parameters) {
            collector.error(
                URL_KEY,
                "the styles `spread` and `deep` are for entries of `query` and `form`",
            );
        }
        let (base, path) = (BaseUrl::parse(scheme, authority, config, collector)?, path?);
        let literal = match path.parts().first() {
            Some(Part::Text(text)) => text,
            Some(Part::Value(..)) | None => "",
        };
        let mut base_url = base.first_url()?.clone();
        base_url.set_path(literal);
        Some(Self {
            prefix: base_url.path().to_owned(),
            base,
            path,
            mixed_segments,
            query: collector.parse_part(query)?,
        })
    }

    fn parse_path(text: &str, collector: &mut FaultCollector<'_>) -> Option<Template> {
        match path_value::check_segments(text) {
            Err(InvalidPathValue::DotSegment) => {
                collector.error(
                    URL_KEY,
                    "`.` and `..` in the path: write the path that is meant",
                );
            }
            Err(InvalidPathValue::TooManyLayers) => {
                collector.error(
                    URL_KEY,
                    format!("the path is percent-encoded more than {MAX_ENCODING_LAYERS} times: write it encoded once"),
                );
            }
            Ok(()) | Err(InvalidPathValue::TooLong) => {}
        }
        let path = collector.parse_part(text)?;
        if let Some(name) = collector.first_optional_parameter(&path) {
            let message = format!(
                "the path needs `{name}`, so a call without it is refused: make it required"
            );
            collector.warning(URL_KEY, message);
        }
        Some(path)
    }

    /// Reports the hosts that the client is known to refuse.
    pub(super) fn check_hosts(&self, client: &HttpClient, collector: &mut FaultCollector<'_>) {
        for (_, url) in &self.base.hosts {
            if let Err(denied) = client.check_url(url) {
                collector.report_denied_address(URL_KEY, denied.to_string());
            }
        }
        let is_https = |url: &Url| url.scheme() == "https";
        if !client.has_ca_certificates && self.base.first_url().is_some_and(is_https) {
            collector.warning(URL_KEY, NO_CA_CERTIFICATES);
        }
    }

    /// Its placeholders.
    pub(super) fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        let host = self.base.template.iter();
        host.chain([&self.path, &self.query])
            .flat_map(Template::placeholders)
    }

    /// Whether all requests go to the same host.
    pub(super) fn has_one_host(&self) -> bool {
        self.base.hosts.len() == 1
    }

    /// Faults of values that a server would misread at their position in the URL.
    pub(super) fn value_faults(&self, values: Values<'_>) -> Vec<ValueFault> {
        let mut faults = Vec::new();
        for part in self.path.parts() {
            let (name, text) = match part {
                Part::Text(_) => continue,
                Part::Value(name, None) => match values.get(name) {
                    Some(Value::String(text)) => (name, Cow::Borrowed(text.as_str())),
                    other => (name, Cow::Owned(other.map(plain_text).unwrap_or_default())),
                },
                // Without the signs of its style: an empty list is not a value for a path.
                Part::Value(name, Some(_)) => {
                    let text = values
                        .get(name)
                        .map(|value| Style::Comma.text("", value, str::to_owned));
                    (name, Cow::Owned(text.unwrap_or_default()))
                }
            };
            if let (Placeholder::Caller(_), None) = (name, values.get(name)) {
                // Credentials are not known while arguments are checked.
            } else if let (Placeholder::Context(field), None | Some(Value::Null)) =
                (name, values.get(name))
            {
                let message = format!(
                    "`{name}` stands in the path of a URL, so `context` must have `{field}`."
                );
                faults.push(name.fault("format", message));
            } else if text.is_empty() {
                let message =
                    format!("`{name}` stands in the path of a URL and must not be empty.");
                faults.push(name.fault("format", message));
            } else if let Err(invalid) = path_value::check_value(&text) {
                faults.push(path_fault(name, invalid));
            }
        }
        // Checked only if each value is permitted by itself, because then the length of the segment
        // is bounded.
        if faults.is_empty() {
            for segment in &self.mixed_segments {
                if let Err(invalid) =
                    path_value::check_segments(&segment.render(values, plain_text))
                {
                    faults.extend(segment.placeholders().map(|name| path_fault(name, invalid)));
                }
            }
        }
        if let Some(host) = &self.base.template
            && self.base.resolve_url(values).is_none()
            && !host
                .placeholders()
                .any(|name| matches!(name, Placeholder::Caller(_)) && values.get(name).is_none())
        {
            let hosts = self.base.hosts.iter();
            let names: Vec<&str> = hosts.map(|(name, _)| name.as_str()).collect();
            let message = format!(
                "This host is not in the list of allowed hosts: {}.",
                names.join(", ")
            );
            faults.extend(
                host.placeholders()
                    .map(|name| name.fault("format", message.clone())),
            );
        }
        faults
    }

    /// The URL for these values. `pairs` are encoded, and are added after the query of the
    /// manifest.
    pub(super) fn render(&self, values: Values<'_>, pairs: &[Pair<'_>]) -> Result<Url, ToolError> {
        let encoded = |value: &Value| percent_encode(&plain_text(value));
        let base = self.base.resolve_url(values).ok_or_else(escaped_base_url)?;
        let mut url = base.clone();
        url.set_path(&self.path.render(values, encoded));
        let manifest_query = Some(self.query.render(values, encoded))
            .filter(|manifest_query| !manifest_query.is_empty());
        let added_pairs = pairs.iter().map(|(name, text)| format!("{name}={text}"));
        let query: Vec<String> = manifest_query.into_iter().chain(added_pairs).collect();
        if !query.is_empty() {
            url.set_query(Some(&query.join("&")));
        }
        // The encoding already ensures this. It is checked again because otherwise the operator's
        // credentials would go to another server.
        let is_under_base = url[..Position::BeforePath] == base[..Position::BeforePath]
            && url.path().starts_with(&self.prefix);
        if !is_under_base {
            return Err(escaped_base_url());
        }
        if url.as_str().len() > LONGEST_URL {
            return Err(too_long(url.as_str().len()));
        }
        Ok(url)
    }
}

impl BaseUrl {
    fn parse(
        scheme: &str,
        authority: &str,
        config: &RequestConfig,
        collector: &mut FaultCollector<'_>,
    ) -> Option<Self> {
        if authority.contains('@') {
            collector.error(
                URL_KEY,
                "a user and password in the URL are not allowed: send an `authorization` header",
            );
            return None;
        }
        let colon = authority
            .rfind(':')
            .filter(|&at| !authority[at..].contains(']'));
        let (host, port) = authority.split_at(colon.unwrap_or(authority.len()));
        if port.contains("{{") {
            collector.error(
                URL_KEY,
                "the port is fixed: placeholders are not allowed there",
            );
            return None;
        }
        let bare = |host: &str| match Url::parse(&format!("{scheme}://{host}{port}/")) {
            Ok(url) if url.port() == Some(0) => Err("port 0 cannot be reached".to_owned()),
            Ok(url) => Ok(url),
            Err(error) => Err(error.to_string()),
        };
        let template = collector.parse_part(host)?;
        if let Some(host) = template.as_literal() {
            if !config.allow_hosts.is_empty() {
                collector.warning(
                    &["request", "allow_hosts"],
                    "has no effect: the URL's host holds no placeholder",
                );
            }
            return bare(host)
                .map(|url| Self {
                    template: None,
                    hosts: vec![(host.to_owned(), url)],
                })
                .map_err(|message| collector.error(URL_KEY, message))
                .ok();
        }
        if config.allow_hosts.is_empty() {
            collector.error(
                URL_KEY,
                "a placeholder in the host needs `allow_hosts`: the list of permitted hosts",
            );
        }
        let mut hosts = Vec::new();
        for (at, name) in config.allow_hosts.iter().enumerate() {
            let path = ["request", "allow_hosts", &at.to_string()];
            match parse_listed_host(name).and_then(|_| bare(name)) {
                Ok(url) => hosts.push((name.to_lowercase(), url)),
                Err(message) => collector.error(&path, message),
            }
        }
        let (matching, unmatched): (Vec<_>, Vec<_>) = hosts
            .iter()
            .partition(|(name, _)| can_match(&template, name));
        for (name, _) in &unmatched {
            let message =
                format!("`{name}` is never used: the URL's host `{host}` cannot match it");
            match matching.is_empty() {
                true => collector.error(&["request", "allow_hosts"], message),
                false => collector.warning(&["request", "allow_hosts"], message),
            }
        }
        Some(Self {
            template: Some(template),
            hosts,
        })
    }

    /// One of the possible bases.
    fn first_url(&self) -> Option<&Url> {
        self.hosts.first().map(|(_, url)| url)
    }

    fn resolve_url(&self, values: Values<'_>) -> Option<&Url> {
        let Some(template) = &self.template else {
            return self.first_url();
        };
        let rendered_host = template.render(values, plain_text).to_lowercase();
        let mut hosts = self.hosts.iter();
        hosts
            .find(|(name, _)| *name == rendered_host)
            .map(|(_, url)| url)
    }
}

/// Parses an entry of a list of hosts. `url` accepts more characters than a DNS name may contain,
/// such as `*`, so these are checked here.
///
/// # Errors
/// A sentence that says what would be right.
pub(crate) fn parse_listed_host(name: &str) -> Result<Host, String> {
    if name.contains('*') {
        return Err(format!(
            "`{name}` is not a host: patterns are not supported here; write each host"
        ));
    }
    let host = Host::parse(name).ok().filter(|host| match host {
        Host::Domain(name) => name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)),
        Host::Ipv4(_) | Host::Ipv6(_) => true,
    });
    host.ok_or_else(|| {
        format!("`{name}` is not a host: write a name or an address, without scheme, port and path")
    })
}

/// Whether the filled-in host can become this name, judged by the text around its placeholders.
fn can_match(host: &Template, name: &str) -> bool {
    let text = |part: Option<&Part>| match part {
        Some(Part::Text(text)) => text.to_lowercase(),
        Some(Part::Value(..)) | None => String::new(),
    };
    let (first, last) = (text(host.parts().first()), text(host.parts().last()));
    name.len() > first.len() + last.len() && name.starts_with(&first) && name.ends_with(&last)
}

pub(crate) fn percent_encode(text: &str) -> String {
    utf8_percent_encode(text, ENCODED_CHARS).to_string()
}

/// The fault of a value that is not permitted in a path.
fn path_fault(name: &Placeholder, invalid: InvalidPathValue) -> ValueFault {
    let rule = match invalid {
        InvalidPathValue::TooLong => format!(" and has at most {MAX_VALUE_BYTES} bytes there"),
        InvalidPathValue::TooManyLayers => format!(
            " and is percent-encoded more than {MAX_ENCODING_LAYERS} times: write it decoded"
        ),
        InvalidPathValue::DotSegment => ", where `.` and `..` lead elsewhere".to_owned(),
    };
    name.fault(
        "format",
        format!("`{name}` stands in the path of a URL{rule}."),
    )
}

/// A path segment with a placeholder and other text. Its literal text is decoded once, because it
/// is checked together with values that are not encoded yet.
fn parse_mixed_segment(text: &str, collector: &FaultCollector<'_>) -> Option<Template> {
    let template = collector.parse_part(text)?;
    (template.parts().len() > 1 || template.styles().next().is_some()).then(|| {
        template.map_text(|text| percent_decode_str(text).decode_utf8_lossy().into_owned())
    })
}

fn too_long(length: usize) -> ToolError {
    let message = format!(
        "These values make a URL of {length} characters, and at most {LONGEST_URL} are possible. Send shorter values."
    );
    let violation = Violation {
        pointer: String::new(),
        keyword: "maxLength".into(),
        message,
        schema_pointer: String::new(),
    };
    ToolError::InvalidArguments(vec![violation])
}

fn escaped_base_url() -> ToolError {
    ToolError::upstream_permanent("the values would lead outside of the tool's URL")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::call::{Effect, JsonObject};
    use crate::kinds::HttpClients;
    use crate::kinds::http::address_policy::AddressPolicy;
    use crate::kinds::{BuildContext, ConfigFault};

    fn collect_faults(run: impl FnOnce(&mut FaultCollector<'_>)) -> Vec<ConfigFault> {
        let input_schema = json!({"properties": {"x": {}, "y": {}, "z": {}, "host": {}}, "required": ["x", "y", "host"]});
        let base = std::path::Path::new(".");
        let context = BuildContext {
            name: "t",
            base_dir: base,
            input_schema: &input_schema,
            context_fields: &["tenant".to_owned(), "region".to_owned()],
            effect: Effect::Read,
            trusted: true,
        };
        let mut collector = FaultCollector::new(&context);
        run(&mut collector);
        collector.faults
    }

    fn parse(url: &str, hosts: &[&str]) -> (Option<UrlTemplate>, Vec<ConfigFault>) {
        let config = serde_json::from_value(json!({"url": url, "allow_hosts": hosts})).unwrap();
        let mut target = None;
        let faults = collect_faults(|collector| target = UrlTemplate::parse(&config, collector));
        (target, faults)
    }

    fn parse_valid(url: &str, hosts: &[&str]) -> UrlTemplate {
        let (target, faults) = parse(url, hosts);
        assert_eq!(faults, []);
        target.unwrap()
    }

    fn object(value: Value) -> JsonObject {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn values_are_encoded_for_their_position() {
        let target = parse_valid(
            "https://api.example.com:8443/v1/{{ x }}/w?a={{ x }}&b=ü",
            &[],
        );
        for (value, encoded) in [
            (json!("Oslo, NO"), "Oslo%2C%20NO"),
            (json!("a/b?c#d%e&f=g"), "a%2Fb%3Fc%23d%25e%26f%3Dg"),
            (json!("@evil.example:80\\"), "%40evil.example%3A80%5C"),
            (json!("\r\nHost: x"), "%0D%0AHost%3A%20x"),
            (json!("ø~-._"), "%C3%B8~-._"),
            (json!(7), "7"),
            (json!("{{ y }}"), "%7B%7B%20y%20%7D%7D"),
        ] {
            let arguments = object(json!({"x": value}));
            assert_eq!(
                target.value_faults(Values::from_arguments(&arguments)),
                [],
                "{value}"
            );
            let url = target
                .render(
                    Values::from_arguments(&arguments),
                    &[
                        ("p".into(), percent_encode("1 &")),
                        ("p".into(), percent_encode("é")),
                    ],
                )
                .unwrap();
            let expected = format!(
                "https://api.example.com:8443/v1/{encoded}/w?a={encoded}&b=%C3%BC&p=1%20%26&p=%C3%A9"
            );
            assert_eq!(url.as_str(), expected);
        }
    }

    #[test]
    fn path_values_with_dot_segments_are_rejected() {
        let target = parse_valid("https://api.example.com/v1/{{ x }}", &[]);
        for value in [
            "",
            ".",
            "..",
            "%2e",
            "%2E%2e",
            ".%2e",
            "%252e%252e",
            "../admin",
            "a/../b",
            "a\\..\\b",
            "..%2fadmin",
        ] {
            let faults = target.value_faults(Values::from_arguments(&object(json!({"x": value}))));
            assert_eq!(
                faults
                    .iter()
                    .map(|v| v.pointer().to_owned())
                    .collect::<Vec<_>>(),
                ["/x"],
                "{value:?}"
            );
        }
        for value in [
            "..;/admin",
            "..\0",
            " ..",
            "\u{ff0e}\u{ff0e}",
            "\u{2025}",
            "..%3bx",
        ] {
            assert_eq!(
                target
                    .value_faults(Values::from_arguments(&object(json!({"x": value}))))
                    .len(),
                1,
                "{value:?}"
            );
        }
        for missing in [json!({}), json!({"x": null})] {
            assert_eq!(
                target
                    .value_faults(Values::from_arguments(&object(missing)))
                    .len(),
                1
            );
        }
        for fine in ["...", ".hidden", "a..b", "a.b"] {
            assert_eq!(
                target.value_faults(Values::from_arguments(&object(json!({"x": fine})))),
                [],
                "{fine}"
            );
        }
    }

    #[test]
    fn mixed_segments_cannot_form_dot_segments() {
        for (url, x, y) in [
            ("https://api.example.com/v1/{{ x }}{{ y }}", "%2", "e%2e"),
            ("https://api.example.com/v1/..{{ x }}/{{ y }}", ";a", "b"),
            ("https://api.example.com/v1/%2e{{ x }}/{{ y }}", "%00", "b"),
            ("https://api.example.com/v1/%252{{ x }}{{ y }}", "e", ";"),
        ] {
            let target = parse_valid(url, &[]);
            assert!(
                !target
                    .value_faults(Values::from_arguments(&object(json!({"x": x, "y": y}))))
                    .is_empty(),
                "{url}"
            );
            assert_eq!(
                target.value_faults(Values::from_arguments(&object(json!({"x": "a", "y": "b"})))),
                [],
                "{url}"
            );
        }
    }

    #[test]
    fn path_values_have_a_length_limit() {
        let target = parse_valid("https://api.example.com/v1/{{ x }}", &[]);
        let message = |value: String| {
            target.value_faults(Values::from_arguments(&object(json!({"x": value}))))[0]
                .message()
                .to_owned()
        };
        assert!(message("x".repeat(MAX_VALUE_BYTES + 1)).contains("at most 8192 bytes"));
        assert!(message("x/".repeat(1 << 19)).contains("at most 8192 bytes"));
        assert!(message(format!("%{}", "25".repeat(4000))).contains("more than 3 times"));
    }

    #[test]
    fn path_faults_state_the_rule() {
        let target = parse_valid("https://api.example.com/v1/{{ x }}", &[]);
        for (value, expected) in [
            (
                "".to_owned(),
                "`x` stands in the path of a URL and must not be empty.",
            ),
            (
                "..".to_owned(),
                "`x` stands in the path of a URL, where `.` and `..` lead elsewhere.",
            ),
            (
                "x".repeat(MAX_VALUE_BYTES + 1),
                "`x` stands in the path of a URL and has at most 8192 bytes there.",
            ),
            (
                "%25252525".to_owned(),
                "`x` stands in the path of a URL and is percent-encoded more than 3 times: write it decoded.",
            ),
        ] {
            let faults = target.value_faults(Values::from_arguments(&object(json!({"x": value}))));
            assert_eq!(
                faults
                    .iter()
                    .map(|fault| fault.message())
                    .collect::<Vec<_>>(),
                [expected]
            );
        }
    }

    #[test]
    fn context_fields_are_checked_like_arguments() {
        let target = parse_valid(
            "https://{{ context.region }}.example.com/t/{{ context.tenant }}?t={{ context.tenant }}",
            &["eu.example.com"],
        );
        let at = |context: Value| {
            let (arguments, context) =
                (object(json!({"context.tenant": "other"})), object(context));
            let values = Values {
                arguments: &arguments,
                context: &context,
                credentials: None,
            };
            let faults: Vec<String> = target
                .value_faults(values)
                .iter()
                .map(|fault| format!("{fault:?}"))
                .collect();
            if faults.is_empty() {
                Ok(target.render(values, &[]).unwrap().to_string())
            } else {
                Err(faults.concat())
            }
        };
        let url = at(json!({"region": "EU", "tenant": "a/b?c&d"}));
        assert_eq!(
            url,
            Ok("https://eu.example.com/t/a%2Fb%3Fc%26d?t=a%2Fb%3Fc%26d".into())
        );
        for (context, expected) in [
            (
                json!({"region": "eu"}),
                "Context(\"`context.tenant` stands in the path of a URL, so `context` must have `tenant`",
            ),
            (
                json!({"region": "eu", "tenant": ".."}),
                "`context.tenant` stands in the path of a URL, where `.`",
            ),
            (
                json!({"region": "eu", "tenant": "x".repeat(MAX_VALUE_BYTES + 1)}),
                "`context.tenant` stands in the path of a URL and has at most",
            ),
            (
                json!({"region": "evil.org/", "tenant": "a"}),
                "Context(\"This host is not in the list",
            ),
        ] {
            let faults = at(context).unwrap_err();
            assert!(
                faults.starts_with("Context") && faults.contains(expected),
                "{faults}"
            );
        }
        let (_, faults) = parse("https://a.example/{{ context.user }}", &[]);
        assert!(
            faults[0]
                .message
                .contains("write `context: [tenant, region, user]`"),
            "{faults:?}"
        );
        let (_, faults) = parse("https://a.example/{{ context.tenant.id }}", &[]);
        assert!(
            faults[0].message.contains("a single name, not a path"),
            "{faults:?}"
        );
    }

    #[test]
    fn missing_certificates_warn_for_https_only() {
        let mut client = HttpClients::default().get(AddressPolicy::allow_all());
        for (url, has_ca_certificates, warnings) in [
            ("https://a.example/", false, 1),
            ("http://a.example/", false, 0),
            ("https://a.example/", true, 0),
        ] {
            client.has_ca_certificates = has_ca_certificates;
            let faults = collect_faults(|collector| {
                let config = serde_json::from_value(json!({"url": url})).unwrap();
                UrlTemplate::parse(&config, collector)
                    .unwrap()
                    .check_hosts(&client, collector);
            });
            assert_eq!(faults.len(), warnings, "{url}: {faults:?}");
        }
    }

    #[test]
    fn single_listed_host_is_one_target() {
        assert!(parse_valid("https://a.example/", &[]).has_one_host());
        assert!(parse_valid("https://{{ host }}/", &["a.example"]).has_one_host());
        assert!(!parse_valid("https://{{ host }}/", &["a.example", "b.example"]).has_one_host());
    }

    #[test]
    fn url_always_keeps_its_prefix() {
        let target = parse_valid("http://api.example.com/tenant-a/{{ x }}{{ y }}?q", &[]);
        proptest::proptest!(|(x in ".*", y in "[./%2eE\\\\?#@:]{0,6}")| {
            let arguments = object(json!({"x": x, "y": y}));
            if target.value_faults(Values::from_arguments(&arguments)).is_empty() {
                let url = target.render(Values::from_arguments(&arguments), &[]).unwrap();
                assert!(url.as_str().starts_with("http://api.example.com/tenant-a/"), "{url}");
                assert_eq!(url.path_segments().unwrap().count(), 2, "{url}");
                assert_eq!(url.query(), Some("q"));
            }
        });
    }

    #[test]
    fn host_must_be_in_the_list() {
        let target = parse_valid(
            "https://{{ host }}.example.com:444/p",
            &["EU.example.com", "us.example.com"],
        );
        let url = target
            .render(Values::from_arguments(&object(json!({"host": "eU"}))), &[])
            .unwrap();
        assert_eq!(url.as_str(), "https://eu.example.com:444/p");
        for bad in [
            "evil",
            "",
            "evil.example/eu",
            "eu.example.com@evil",
            "us.example.com#",
            "eu.",
            " eu",
        ] {
            let arguments = object(json!({"host": bad}));
            let faults = target.value_faults(Values::from_arguments(&arguments));
            assert!(
                faults[0]
                    .message()
                    .contains("eu.example.com, us.example.com"),
                "{bad}"
            );
            assert!(
                target
                    .render(Values::from_arguments(&arguments), &[])
                    .is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn invalid_urls_are_config_faults() {
        for (url, hosts, expected) in [
            ("{{ x }}://a.example/", &[] as &[&str], "literal http"),
            ("ftp://a.example/", &[], "literal http"),
            ("a.example/path", &[], "literal http"),
            ("https://user:pw@a.example/", &[], "user and password"),
            ("https://{{ x }}@a.example/", &[], "user and password"),
            ("https://a.example:{{ x }}/", &[], "port is fixed"),
            ("https://a.example:0/", &[], "port 0"),
            ("https://a.example:65536/", &[], "invalid port"),
            ("https://{{ x }}.example/", &[], "needs `allow_hosts`"),
            ("https://{{ x }}/", &["a.example/x"], "not a host"),
            ("https://{{ x }}/", &["a.example:80"], "port"),
            (
                "https://{{ x }}/",
                &["*"],
                "`*` is not a host: patterns are not supported here; write each host",
            ),
            (
                "https://{{ x }}/",
                &["a.example", "*.b.example"],
                "patterns are not supported",
            ),
            ("https://{{ x }}/", &["https://a.example"], "without scheme"),
            ("https://{{ x }}/", &[""], "not a host"),
            ("https://{{ x }}/", &[" a.example"], "not a host"),
            ("https://{{ x }}/", &["a.example,b.example"], "not a host"),
            (
                "https://{{ x }}.example/",
                &["a.other"],
                "`a.other` is never used",
            ),
            (
                "https://api.{{ x }}.example/",
                &["api.example"],
                "`api.example` is never used",
            ),
            ("https://{{ x }}/", &["u@a.example"], "not a host"),
            ("https:///path", &[], "empty host"),
            ("https://a.example/{{ nope }}", &[], "no parameter `nope`"),
            ("https://a.example/{{ x }", &[], "without `}}`"),
            ("https://a.example/a/%2e%2E/{{ x }}", &[], "`.` and `..`"),
            ("https://a.example/a/..;b/{{ x }}", &[], "`.` and `..`"),
            (
                "https://a.example/%2525252525/{{ x }}",
                &[],
                "more than 3 times",
            ),
            ("https://a.example/a b", &[], "white space"),
            ("https://a.example\\@b.example/", &[], "white space"),
            ("https://a.example/a#b", &[], "never sent"),
        ] {
            let (_, faults) = parse(url, hosts);
            let errors: Vec<_> = faults.iter().filter(|fault| !fault.warning).collect();
            assert!(
                errors.iter().any(|fault| fault.message.contains(expected)),
                "{url}: {faults:?}"
            );
        }
        assert!(
            parse("https://a.example/{{ z }}", &[]).1[0].warning,
            "an optional parameter in the path"
        );
        assert!(
            parse("https://a.example/", &["b.example"]).1[0].warning,
            "allow_hosts without use"
        );
    }

    #[test]
    fn too_long_urls_are_invalid_arguments() {
        let target = parse_valid("https://example.com/{{ x }}?y={{ y }}", &[]);
        let text = "é".repeat(LONGEST_URL / 6);
        let arguments = object(json!({"x": "a", "y": text}));
        let error = target
            .render(Values::from_arguments(&arguments), &[])
            .unwrap_err();
        let ToolError::InvalidArguments(violations) = error else {
            panic!("{error}")
        };
        assert!(
            violations[0]
                .message
                .ends_with("at most 65534 are possible. Send shorter values."),
            "{violations:?}"
        );
    }
}
