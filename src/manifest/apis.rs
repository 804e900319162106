//! One entry of `openapi:`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::caller_references::{has_caller_references, refuse_shared_caches};
use super::decode::{field_names, join_path};
use super::node::Node;
use super::parsed::{OPENAPI, ParsedTool};
use super::reference_context::EntryKind;
use super::references::explain_omitted_values;
use super::sections::PolicyEntry;
use super::source::{DeclaredSource, SourceRules};
use super::source_tools::{EntryChecks, SourceInputs};
use super::tool::ToolReader;
use crate::call::units::{HumanDuration, Size};
use crate::call::{JsonObject, Kind, NameError, ToolName};
use crate::kinds::http::AuthConfig;
use crate::kinds::http::address_policy::AddressPolicy;
use crate::sources::SourceSettings;
use crate::sources::openapi::reader::Selector;
use crate::sources::openapi::{ApiSettings, DocumentLocation, read_document};
use crate::text::suggest;

/// The default time to read a document.
const DEFAULT_START_TIMEOUT: Duration = Duration::from_secs(60);
/// Keys that define what runs.
const RUNTIME_KEYS: [&str; 9] = [
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
/// Keys that are read separately.
const SEPARATE_KEYS: [&str; 2] = ["tools", "defaults"];

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

impl ToolReader<'_> {
    /// Reads one entry, and the entries of its tools. Faults are added to the findings.
    pub(super) fn read_api(
        &mut self,
        name: &str,
        unresolved: &Node,
    ) -> Option<(DeclaredSource, Vec<ParsedTool>)> {
        let entry_path = join_path(OPENAPI, &[name.to_owned()]);
        if ToolName::parse(name).is_err() {
            let message = "an API's name here has 1 to 128 characters of A-Z a-z 0-9 _ - . and is not . or ..";
            self.findings.error(unresolved, &[], &entry_path, message);
            return None;
        }
        let before = self.findings.0.len();
        let known = field_names::<ApiEntry>();
        let as_entry = |text: &str| json!({"document": text});
        self.check_source_entry(
            unresolved,
            &entry_path,
            known,
            "document, include, headers, tools …",
            as_entry,
        )?;
        let mut node =
            unresolved.filtered(|key| known.contains(&key) && !SEPARATE_KEYS.contains(&key));
        let omitted = self.resolve_references(
            &mut node,
            &entry_path,
            EntryKind::Source,
            Default::default(),
        );
        let entry: ApiEntry = self.findings.decode(&node, &entry_path).unwrap_or_default();
        let mut rules = SourceRules {
            prefix: entry.prefix.clone(),
            ..SourceRules::default()
        };
        if ToolName::parse(&format!("{}x", entry.prefix)).is_err() {
            self.findings.error(
                &node,
                &["prefix".into()],
                &entry_path,
                NameError.to_string(),
            );
        }
        let tools = self.read_source_tools(
            Kind::Http,
            unresolved,
            &entry_path,
            PolicyEntry::default(),
            &mut rules,
        );
        let settings = self.api_settings(name, entry, &node, &entry_path);
        if has_caller_references(&node) {
            refuse_shared_caches(&rules, unresolved, &entry_path, self.findings);
        }
        if !self.has_errors_since(before)
            && let Some(settings) = &settings
        {
            self.check_document(settings, &rules, unresolved, &entry_path);
        }
        if self.has_errors_since(before) {
            explain_omitted_values(omitted, before, self.findings);
            return None;
        }
        let runs = |node: &Node| node.filtered(|key| RUNTIME_KEYS.contains(&key)).to_json();
        let declared = DeclaredSource {
            settings: SourceSettings::Openapi(settings?.into()),
            rules,
            written_settings: runs(unresolved),
            generation: SourceInputs::default().generation(&runs(&node)),
        };
        Some((declared, tools))
    }

    fn api_settings(
        &mut self,
        name: &str,
        entry: ApiEntry,
        node: &Node,
        entry_path: &str,
    ) -> Option<ApiSettings> {
        let base = self.base;
        let exists = |path: &Path| self.input.is_file(path);
        let mut checks = EntryChecks {
            findings: &mut *self.findings,
            node,
            entry_path,
        };
        if entry.start_timeout.is_some_and(|time| time.0.is_zero()) {
            checks.error(
                "start_timeout",
                "the time must be above zero; leave the key out for 60s",
            );
        }
        let document = match entry.document.as_deref() {
            None => {
                let message = "document is missing: a file, e.g. ./shop.yaml, or a URL";
                checks.findings.error(node, &[], entry_path, message);
                None
            }
            Some(text) if text.contains("://") => match Url::parse(text) {
                Ok(url) if matches!(url.scheme(), "http" | "https") => {
                    Some(DocumentLocation::Url(url))
                }
                _ => {
                    checks.error("document", "a URL begins with http:// or https://");
                    None
                }
            },
            Some(file) => checks
                .existing_file("document", base, file, &exists)
                .map(DocumentLocation::File),
        };
        if let Some(text) = &entry.base_url
            && !Url::parse(text)
                .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.query().is_none())
        {
            checks.error(
                "base_url",
                "a URL without a query is expected here, such as https://shop.example/v1",
            );
        }
        let mut selectors = |key: &str, texts: Option<Vec<String>>| {
            let texts = texts.unwrap_or_default();
            let parsed: Result<Vec<Selector>, String> =
                texts.iter().map(|text| Selector::parse(text)).collect();
            parsed.unwrap_or_else(|message| {
                checks.error(key, &message);
                Vec::new()
            })
        };
        let (include, exclude) = (
            selectors("include", entry.include),
            selectors("exclude", entry.exclude),
        );
        for (name, value) in &entry.headers {
            let message = if HeaderName::try_from(name).is_err() {
                "this is not a valid name of a header field"
            } else if HeaderValue::try_from(value).is_err() {
                "a header field holds one line of plain text"
            } else {
                continue;
            };
            checks.findings.error(
                node,
                &["headers".to_owned(), name.clone()],
                entry_path,
                message,
            );
        }
        if let Some(auth) = &entry.auth {
            let policy = AddressPolicy::new(entry.allow_private, "allow_private");
            self.check_auth(auth, policy, entry.headers.keys(), node, entry_path);
        }
        Some(ApiSettings {
            name: name.to_owned(),
            document: document?,
            base_url: entry.base_url,
            include,
            exclude,
            headers: entry.headers,
            query: entry.query,
            auth: entry.auth,
            allow_private: entry.allow_private,
            allow_hosts: entry.allow_hosts,
            max_output: entry.max_output,
            start_timeout: entry
                .start_timeout
                .map_or(DEFAULT_START_TIMEOUT, |time| time.0),
        })
    }

    /// Reads a document that is a file, so that `check` reports its faults. A document at a URL is
    /// read at the start.
    fn check_document(
        &mut self,
        settings: &ApiSettings,
        rules: &SourceRules,
        node: &Node,
        entry_path: &str,
    ) {
        let DocumentLocation::File(file) = &settings.document else {
            return;
        };
        // A file that cannot be read is reported when the source starts, with the reason of the
        // file system.
        let Ok(text) = self.input.read_text(file) else {
            return;
        };
        let key = ["document".to_owned()];
        match read_document(settings, &text) {
            Err(message) => self.findings.error(node, &key, entry_path, message),
            Ok(import) if import.operations.is_empty() => {
                let reason = import.left_out.first().map_or_else(
                    || "`include` selects none of them".to_owned(),
                    |first| format!("{}: {}", first.operation, first.reason),
                );
                let message = format!(
                    "none of its {} operations becomes a tool: {reason}",
                    import.found
                );
                self.findings.error(node, &key, entry_path, message);
            }
            Ok(import) if self.warns_of_documents => {
                let operations = import.operations.iter().map(|one| one.name.as_str());
                let left_out = import.left_out.iter().map(|one| one.name.as_str());
                let names: Vec<&str> = operations.chain(left_out).collect();
                let unknown = rules
                    .tools
                    .keys()
                    .filter(|key| !names.contains(&key.as_str()));
                for key in unknown {
                    let near =
                        suggest::closest_name(key, names.iter().copied(), suggest::MIN_HINT_RATIO);
                    let hint = match near {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => {
                            "a key is an operationId or the tool's name without the prefix".into()
                        }
                    };
                    let message = format!("the document has no operation `{key}`; {hint}");
                    let path = ["tools".to_owned(), key.clone()];
                    self.findings.error(node, &path, entry_path, message);
                }
                for pattern in rules.policies.unmatched_patterns(&names) {
                    let path = ["tools".to_owned(), pattern.to_owned()];
                    let message = "this pattern matches no operation, so it has no effect";
                    self.findings.warning(node, &path, entry_path, message);
                }
                for warning in import.warnings {
                    self.findings.warning(node, &key, entry_path, warning);
                }
                for left_out in import.left_out {
                    let message = format!(
                        "the operation {} is left out: {}",
                        left_out.operation, left_out.reason
                    );
                    self.findings.warning(node, &key, entry_path, message);
                }
            }
            Ok(_) => {}
        }
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
