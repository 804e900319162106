//! One entry of `openapi:`.

use std::collections::BTreeMap;

use reqwest::header::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::decode::Entry;
use super::inputs::Inputs;
use super::sections::PolicyEntry;
use super::source::SourceRules;
use super::source_tools::{Source, SourceEntry};
use crate::call::units::{HumanDuration, Size};
use crate::call::{JsonObject, Kind};
use crate::kinds::http::AuthConfig;
use crate::kinds::http::address_policy::AddressPolicy;
use crate::sources::SourceSettings;
use crate::sources::openapi::reader::Selector;
use crate::sources::openapi::{ApiSettings, DocumentLocation, build_tools, read_document};
use crate::text::suggest;

/// One entry of `openapi:`: an API whose operations become tools of kind `http`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ApiEntry {
    /// The OpenAPI document, version 3.0 or newer, as YAML or JSON: a file relative to the
    /// manifest, or a URL.
    #[schemars(extend("examples" = ["./shop.yaml"]))]
    document: Option<String>,
    /// The base URL of all operations. Default: the first server of the document.
    #[schemars(extend("examples" = ["https://shop.example/v1"]))]
    base_url: Option<String>,
    /// The operations that become tools: method and path, path, operationId or tag; `*` stands for
    /// any characters. Default: all.
    #[schemars(extend("examples" = [["GET /orders*", "createOrder"]]))]
    include: Option<Vec<String>>,
    /// The operations that are left out. Takes precedence over `include`.
    #[schemars(extend("examples" = [["DELETE *", "admin"]]))]
    exclude: Option<Vec<String>>,
    /// Header fields of every request.
    #[schemars(extend("examples" = [serde_json::json!({"authorization": "Bearer ${env:SHOP_TOKEN}"})]))]
    headers: BTreeMap<String, String>,
    /// Query parameters of every request.
    #[schemars(extend("examples" = [serde_json::json!({"api_key": "${env:SHOP_KEY}"})]))]
    query: BTreeMap<String, String>,
    /// How every request is authorized, if `headers` and `query` are not enough.
    #[schemars(extend("examples" = [serde_json::json!({"oauth": {"token_url": "https://auth.shop.example/token", "client_id": "orders-agent", "client_secret": "${env:SHOP_SECRET}"}})]))]
    auth: Option<AuthConfig>,
    /// Allows private and loopback addresses. Metadata addresses are never allowed.
    #[schemars(extend("examples" = [true]))]
    allow_private: bool,
    /// Hosts besides the base URL's that operations may name as their server.
    #[schemars(extend("examples" = [["uploads.shop.example"]]))]
    allow_hosts: Vec<String>,
    /// Text before the name of every tool.
    #[schemars(extend("examples" = ["shop_"]))]
    prefix: String,
    /// Longest response that is read, at most 4MiB.
    #[schemars(extend("examples" = ["1MiB"]), extend("default" = "256KiB"))]
    max_output: Option<Size>,
    /// Time to read a document at a URL.
    #[schemars(extend("examples" = ["60s"]), extend("default" = "60s"))]
    start_timeout: Option<HumanDuration>,
    /// Policy of all tools of the API.
    // Read separately.
    #[schemars(with = "PolicyEntry")]
    defaults: Option<serde_json::Value>,
    /// Policy of single tools, by the name from the document. A name with `*` is a pattern for
    /// several tools.
    // Read separately for each tool.
    #[schemars(with = "BTreeMap<String, JsonObject>")]
    tools: Option<serde_json::Value>,
}

impl SourceEntry for ApiEntry {
    const KIND: Kind = Kind::Http;
    const RUNTIME_KEYS: &[&str] = &[
        "document",
        "base_url",
        "include",
        "exclude",
        "headers",
        "query",
        "auth",
        "allow_private",
        "allow_hosts",
    ];
    const NAME_RULE: &str =
        "an API's name here has 1 to 128 characters of A-Z a-z 0-9 _ - . and is not . or ..";
    const SOME_KEYS: &str = "document, include, headers, tools …";

    fn from_text(text: &str) -> Value {
        json!({"document": text})
    }

    fn rules(&self, _: &str) -> SourceRules {
        SourceRules {
            prefix: self.prefix.clone(),
            ..SourceRules::default()
        }
    }

    fn settings(self, name: &str, source: &Source<'_>) -> Option<SourceSettings> {
        let start_timeout = source.start_timeout(self.start_timeout);
        let document = read_location(self.document.as_deref(), source);
        let is_base = |url: Url| matches!(url.scheme(), "http" | "https") && url.query().is_none();
        let base_url = self.base_url.as_deref();
        if base_url.is_some_and(|text| !Url::parse(text).is_ok_and(is_base)) {
            let message = "a URL without a query is expected here, such as https://shop.example/v1";
            source.error("base_url", message);
        }
        let selectors = |key: &str, texts: Option<Vec<String>>| -> Vec<Selector> {
            let parsed = texts.iter().flatten().map(|text| Selector::parse(text));
            parsed
                .collect::<Result<_, _>>()
                .unwrap_or_else(|message: String| {
                    source.error(key, message);
                    Vec::new()
                })
        };
        let (include, exclude) = (
            selectors("include", self.include),
            selectors("exclude", self.exclude),
        );
        for (name, value) in &self.headers {
            let message = if HeaderName::try_from(name).is_err() {
                "this is not a valid name of a header field"
            } else if HeaderValue::try_from(value).is_err() {
                "a header field holds one line of plain text"
            } else {
                continue;
            };
            source.entry.error(&["headers", name], message);
        }
        if let Some(auth) = &self.auth {
            let policy = AddressPolicy::new(self.allow_private, "allow_private");
            source.check_auth(auth, policy, self.headers.keys());
        }
        let settings = ApiSettings {
            name: name.to_owned(),
            document: document?,
            base_url: self.base_url,
            include,
            exclude,
            headers: self.headers,
            query: self.query,
            auth: self.auth,
            allow_private: self.allow_private,
            allow_hosts: self.allow_hosts,
            max_output: self.max_output,
            start_timeout,
        };
        Some(SourceSettings::Openapi(settings.into()))
    }

    /// Reads a document that is a file, so that `check` reports its faults. A document at a URL is
    /// read at the start.
    fn check(
        settings: &SourceSettings,
        rules: &SourceRules,
        inputs: &Inputs<'_>,
        entry: Entry<'_>,
    ) {
        let SourceSettings::Openapi(settings) = settings else {
            return;
        };
        let DocumentLocation::File(file) = &settings.document else {
            return;
        };
        // A file that cannot be read is reported when the source starts, with the reason of the
        // file system.
        let Ok(text) = inputs.input.read_text(file) else {
            return;
        };
        let import = match read_document(settings, &text) {
            Err(message) => return entry.error(&["document"], message),
            Ok(import) => import,
        };
        if import.operations.is_empty() {
            let reason = import.left_out.first().map_or_else(
                || "`include` selects none of them".to_owned(),
                |first| format!("{}: {}", first.operation, first.reason),
            );
            let found = import.found;
            let message = format!("none of its {found} operations becomes a tool: {reason}");
            return entry.error(&["document"], message);
        }
        if !inputs.warns_of_documents {
            return;
        }
        let listing = match build_tools(settings, inputs.clients, import) {
            Err(message) => return entry.error(&["document"], message),
            Ok((listing, _)) => listing,
        };
        let tools = listing.tools.iter().map(|tool| tool.name.as_str());
        let skipped = listing.skipped_names.iter().map(String::as_str);
        let names: Vec<&str> = tools.chain(skipped).collect();
        for key in rules
            .tools
            .keys()
            .filter(|key| !names.contains(&key.as_str()))
        {
            let near = suggest::near_name(key, names.iter().copied());
            let hint = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => "a key is an operationId or the tool's name without the prefix".into(),
            };
            let message = format!("the document has no operation `{key}`; {hint}");
            entry.error(&["tools", key], message);
        }
        let tools = listing.tools.iter();
        let tools: Vec<_> = tools
            .map(|tool| (tool.name.as_str(), &tool.input_schema))
            .collect();
        for (keys, message) in rules.policies.idle_entries(&tools, &listing.skipped_names) {
            entry.warning(&keys, message);
        }
        for warning in listing.warnings {
            entry.warning(&["document"], warning);
        }
    }
}

fn read_location(document: Option<&str>, source: &Source<'_>) -> Option<DocumentLocation> {
    match document {
        None => {
            let message = "document is missing: a file, e.g. ./shop.yaml, or a URL";
            source.entry.own_error(message);
            None
        }
        Some(text) if text.contains("://") => {
            let url = Url::parse(text).ok();
            let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
            if url.is_none() {
                source.error("document", "a URL begins with http:// or https://");
            }
            url.map(DocumentLocation::Url)
        }
        Some(file) => source
            .existing_file("document", file)
            .map(DocumentLocation::File),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Effect;
    use crate::manifest::testing::load_text;

    #[test]
    fn invalid_apis_are_located_errors() {
        for (entry, expected) in [
            ("{}", "openapi.a: document is missing"),
            (
                "{document: ./none.yaml}",
                "openapi.a.document: there is no file",
            ),
            (
                "{document: ftp://x.example/a}",
                "openapi.a.document: a URL begins with http:// or https://",
            ),
            (
                "{document: \"https://x.example/a\", base_url: x}",
                "openapi.a.base_url: a URL without a query",
            ),
            (
                "{document: \"https://x.example/a\", include: [\"FETCH /x\"]}",
                "openapi.a.include: `fetch` is not an HTTP method",
            ),
            (
                "{document: \"https://x.example/a\", headers: {\"a b\": c}}",
                "openapi.a.headers.a b: this is not a valid name",
            ),
            (
                "{document: \"https://x.example/a\", prefix: \"a b\"}",
                "openapi.a.prefix: a tool name has",
            ),
            (
                "{document: \"https://x.example/a\", documnt: x}",
                "openapi.a.documnt: unknown key, did you mean document?",
            ),
        ] {
            let errors = load_text(&format!("openapi:\n  a: {entry}\n"))
                .err()
                .unwrap_or_default();
            assert!(
                errors.iter().any(|error| error.contains(expected)),
                "{entry}: {errors:?}"
            );
        }
    }

    #[test]
    fn api_entry_reads_every_key() {
        let entry = "{document: \"https://x.example/a.yaml\", base_url: \"https://x.example/v1\", include: [\"GET /o*\"], exclude: [admin], \
                     headers: {x-key: \"${env:KEY}\"}, query: {v: \"2\"}, allow_private: true, allow_hosts: [u.example], prefix: s_, \
                     max_output: 1MiB, start_timeout: 5s, defaults: {timeout: 5s}, tools: {createOrder: {limits: [{calls: 1, per: day}]}}}";
        let declared = load_text(&format!("openapi:\n  a: {entry}\n"))
            .unwrap()
            .sources
            .remove(0);
        let SourceSettings::Openapi(api) = &declared.settings else {
            panic!("not an API")
        };
        assert_eq!(
            (
                api.include[0].as_str(),
                api.exclude[0].as_str(),
                api.headers["x-key"].as_str()
            ),
            ("GET /o*", "admin", "value-of-key")
        );
        assert_eq!(
            (
                declared.rules.prefix.as_str(),
                api.allow_private,
                api.start_timeout.as_secs()
            ),
            ("s_", true, 5)
        );
        assert_eq!(
            declared
                .rules
                .policy_for("createOrder", Kind::Http, None)
                .limits[0]
                .calls,
            1
        );
        assert!(
            !declared
                .written_settings
                .to_string()
                .contains("value-of-key"),
            "{}",
            declared.written_settings
        );
    }

    #[test]
    fn pattern_may_be_of_operation_ids() {
        let manifest = "openapi:\n  a: {document: \"https://x.example/a.yaml\", tools: {\"issues/*\": {timeout: 7s}}}\n";
        let rules = load_text(manifest).unwrap().sources.remove(0).rules;
        for (name, seconds) in [("issues_list", 7), ("pulls_list", 30)] {
            let policy = rules.policy_for(name, Kind::Http, None);
            assert_eq!(policy.timeout.as_secs(), seconds, "{name}");
        }
    }

    #[test]
    fn derived_reads_get_the_default_cache() {
        let manifest = "defaults: {cache: {ttl: 1m}}\nopenapi:\n  a: {document: \"https://x.example/a.yaml\"}\n";
        let rules = load_text(manifest).unwrap().sources.remove(0).rules;
        let policy = |effect| rules.policy_for("getOrder", Kind::Http, Some(effect));
        assert_eq!(
            policy(Effect::Read).cache.map(|cache| cache.ttl.as_secs()),
            Some(60)
        );
        assert_eq!(
            (policy(Effect::Write).cache, policy(Effect::Write).effect),
            (None, Effect::Write)
        );
    }
}
