//! The approved state of MCP servers and of OpenAPI documents at URLs: how each is reached, and the
//! definition of each of its tools with a hash.
//!
//! A server may change a tool's description after a person has reviewed it, and a model trusts what
//! a description says. So `toolcrib pin` stores the definitions in a file beside the manifest. A
//! tool that differs from its pin is quarantined until it is approved again. The hash decides; the
//! text is for the person who compares.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::definition_change::{DefinitionParts, definition_parts};
use crate::call::canonical::canonical_json;
use crate::sources::{DefinitionFingerprint, DiscoveredTool};

/// Version of the file format that `toolcrib pin` writes.
pub const FORMAT_VERSION: u64 = 2;
/// The versions that can be read. The pins of version 1 have no text.
pub const READABLE_VERSIONS: std::ops::RangeInclusive<u64> = 1..=FORMAT_VERSION;
/// The manifest keys that define how a server is reached, or where a document is and where its
/// requests go.
pub const REACH_KEYS: [&str; 5] = ["command", "environment", "url", "document", "base_url"];
/// Hex digits that are kept of the hash of a part. They only name the part that changed; the full
/// hash decides.
const SHORT_HASH_DIGITS: usize = 16;

/// The contents of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pins {
    /// The version of the format: one of [`READABLE_VERSIONS`].
    pub version: u64,
    /// The pins of each server and document, by its name in the manifest.
    pub servers: BTreeMap<String, ServerPins>,
}

/// What was approved of one server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerPins {
    /// Hash over its command line and environment, its URL, or its document and base URL, as
    /// written in the manifest. The values of references do not count.
    pub reach: Hash,
    /// The pins of its tools, by the server's own names.
    pub tools: BTreeMap<String, ToolPin>,
    /// The file does not have this server, so none of its tools is approved.
    #[serde(skip)]
    pub is_missing: bool,
}

/// What was approved of one tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolPin {
    /// Hash over the canonical JSON of
    /// `{name, title, description, inputSchema, outputSchema, annotations, request}`. Members that
    /// the tool does not have are left out; only an operation has a `request`.
    pub sha256: Hash,
    /// The first digits of the hash of each member, to report what has changed.
    pub parts: BTreeMap<String, String>,
    /// The approved definition as a model sees it, to show what has changed. Secrets are removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<DefinitionParts>,
}

/// A SHA-256 as 64 hex digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct Hash(String);

impl Hash {
    fn from_json(value: &Value) -> Self {
        Self(hex::encode(Sha256::digest(canonical_json(value))))
    }
}

impl TryFrom<String> for Hash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() == 64 && text.bytes().all(is_digit) {
            Ok(Self(text))
        } else {
            Err("a SHA-256 is expected here: 64 digits of 0-9 a-f")
        }
    }
}

/// Why a tool is quarantined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mismatch {
    /// The manifest reaches its server in another way.
    Reach,
    /// The manifest names another document or base URL.
    Document,
    /// Its server is not in the file.
    Unpinned,
    /// Its server did not list it when it was pinned.
    New,
    /// These parts of its definition have changed.
    Changed(Vec<String>),
    /// The text in the file is not the approved definition.
    Text,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reach => f.write_str(
                "its server's command, environment or URL has changed since it was pinned",
            ),
            Self::Document => f.write_str(
                "the document or the base URL of its source has changed since it was pinned",
            ),
            Self::Unpinned => f.write_str("its server is not pinned, though the manifest has pins"),
            Self::New => f.write_str("it is new since its server was pinned"),
            Self::Text => f.write_str(
                "the text of its pin is not the definition that the hash of the pin approves",
            ),
            Self::Changed(parts) => write!(f, "changed since it was pinned: {}", parts.join(", ")),
        }
    }
}

/// Whether the pins approve the same. Pins of version 1 have no text, which is no difference.
pub fn approve_the_same(
    before: &BTreeMap<String, ServerPins>,
    now: &BTreeMap<String, ServerPins>,
) -> bool {
    let is_same = |(name, old): (&String, &ServerPins)| {
        now.get(name).is_some_and(|new| {
            let has_same = |(tool, pin): (&String, &ToolPin)| {
                new.tools.get(tool).is_some_and(|new| pin.is_same_as(new))
            };
            old.reach == new.reach
                && old.tools.len() == new.tools.len()
                && old.tools.iter().all(has_same)
        })
    };
    before.len() == now.len() && before.iter().all(is_same)
}

/// Path of the pins of a manifest: beside it, `toolcrib.lock` for `toolcrib.yaml`.
pub fn pins_path(manifest: &Path) -> PathBuf {
    if manifest
        .extension()
        .is_some_and(|extension| extension == "lock")
    {
        // The manifest itself has this extension, so its pins need another name.
        return manifest.with_extension("lock.lock");
    }
    manifest.with_extension("lock")
}

impl ServerPins {
    /// The pins of the current state. `declaration` is the server's entry in the manifest.
    pub fn new(declaration: &Value, offers: &[DiscoveredTool]) -> Self {
        let pin = |offer: &DiscoveredTool| {
            let mut pin = ToolPin::from_fingerprint(&offer.snapshot.as_ref()?.fingerprint);
            pin.definition = Some(definition_parts(offer));
            Some((offer.name.clone(), pin))
        };
        let tools = offers.iter().filter_map(pin).collect();
        Self {
            reach: reach_hash(declaration),
            tools,
            is_missing: false,
        }
    }

    /// The pins of a server that is not in the file.
    pub fn for_missing_server(declaration: &Value) -> Self {
        Self {
            is_missing: true,
            ..Self::new(declaration, &[])
        }
    }

    /// Whether the server is reached as it was approved.
    pub fn matches_reach(&self, declaration: &Value) -> bool {
        self.reach == reach_hash(declaration)
    }

    /// Why this tool is not the one that was approved; `None` if it is.
    pub fn find_mismatch(&self, declaration: &Value, offer: &DiscoveredTool) -> Option<Mismatch> {
        if self.is_missing {
            return Some(Mismatch::Unpinned);
        }
        if !self.matches_reach(declaration) {
            let is_document = declaration.get("document").is_some();
            return Some(if is_document {
                Mismatch::Document
            } else {
                Mismatch::Reach
            });
        }
        let Some(pinned) = self.tools.get(&offer.name) else {
            return Some(Mismatch::New);
        };
        let Some(now) = offer
            .snapshot
            .as_ref()
            .map(|snapshot| ToolPin::from_fingerprint(&snapshot.fingerprint))
        else {
            return Some(Mismatch::Changed(vec!["definition".into()]));
        };
        if pinned.sha256 != now.sha256 {
            return Some(Mismatch::Changed(pinned.changed_parts(&now)));
        }
        // People read the text, so a harmless one must not stand beside the hash of another.
        let is_other_text = |text: &DefinitionParts| *text != definition_parts(offer);
        let text = pinned.definition.as_ref();
        text.is_some_and(is_other_text).then_some(Mismatch::Text)
    }
}

/// A hash of `command` and `environment`, or of `url`, as written. Variables count because they can
/// decide what runs: the program is searched in PATH, and interpreters and package managers read
/// variables of their own.
fn reach_hash(declaration: &Value) -> Hash {
    let part = |name: &&str| Some(((*name).to_owned(), declaration.get(*name)?.clone()));
    Hash::from_json(&REACH_KEYS.iter().filter_map(part).collect())
}

impl ToolPin {
    /// The pin of a tool with these hashes.
    pub fn from_fingerprint(prints: &DefinitionFingerprint) -> Self {
        let short = |hash: &[u8; 32]| hex::encode(hash)[..SHORT_HASH_DIGITS].to_owned();
        let parts = prints
            .part_hashes
            .iter()
            .map(|(part, hash)| ((*part).to_owned(), short(hash)))
            .collect();
        Self {
            sha256: Hash(hex::encode(prints.full_hash)),
            parts,
            definition: None,
        }
    }

    /// Whether this pin approves the same as `now`, and says so in its text if it has one.
    pub fn is_same_as(&self, now: &Self) -> bool {
        let has_same_text = self.definition.is_none() || self.definition == now.definition;
        self.sha256 == now.sha256 && has_same_text
    }

    /// The names of the parts that differ in `now`.
    pub fn changed_parts(&self, now: &Self) -> Vec<String> {
        let names: BTreeSet<&String> = self.parts.keys().chain(now.parts.keys()).collect();
        let differs = |name: &&String| self.parts.get(*name) != now.parts.get(*name);
        let changed: Vec<String> = names.into_iter().filter(differs).cloned().collect();
        if changed.is_empty() {
            vec!["definition".into()]
        } else {
            changed
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::kinds::UnavailableTool;
    use crate::schema::SchemaOwner;
    use crate::sources::ToolDefinitionSnapshot;

    fn offer(change: impl Fn(&mut DiscoveredTool)) -> DiscoveredTool {
        let mut offer = DiscoveredTool {
            name: "get_weather".into(),
            description: "Weather for a city.".into(),
            input_schema: json!({"type": "object", "properties": {"city": {"type": "string"}}}),
            output_schema: None,
            schema_owner: SchemaOwner::Foreign,
            effect: None,
            tags: Vec::new(),
            annotations: serde_json::Map::new(),
            meta: serde_json::Map::new(),
            result_as_answer: false,
            max_calls: None,
            env: Vec::new(),
            runner: Arc::new(UnavailableTool::new(|| (String::new(), None))),
            snapshot: None,
        };
        change(&mut offer);
        let annotations = (!offer.annotations.is_empty()).then(|| json!(offer.annotations));
        let parts = [
            ("description", Some(json!(offer.description))),
            ("inputSchema", Some(offer.input_schema.clone())),
            ("outputSchema", offer.output_schema.clone()),
            ("annotations", annotations),
        ];
        let prints = Arc::new(DefinitionFingerprint::new(&offer.name, parts));
        offer.snapshot = Some(ToolDefinitionSnapshot {
            fingerprint: prints,
            runner: offer.runner.clone(),
        });
        offer
    }

    #[test]
    fn pin_hash_is_sha256_of_canonical_json() {
        // printf '%s' '{"description":"Weather for a
        // city.","inputSchema":{…},"name":"get_weather"}' | sha256sum
        let text = r#"{"description":"Weather for a city.","inputSchema":{"properties":{"city":{"type":"string"}},"type":"object"},"name":"get_weather"}"#;
        let snapshot = offer(|_| {}).snapshot.unwrap();
        assert_eq!(
            ToolPin::from_fingerprint(&snapshot.fingerprint).sha256.0,
            hex::encode(Sha256::digest(text))
        );
    }

    #[test]
    fn pin_covers_the_whole_definition() {
        let declaration = json!({"command": ["npx", "server"], "environment": {"A": "${env:A}"}});
        let pins = ServerPins::new(&declaration, &[offer(|_| {})]);
        assert_eq!(pins.find_mismatch(&declaration, &offer(|_| {})), None);
        let changed = |change: fn(&mut DiscoveredTool)| match pins
            .find_mismatch(&declaration, &offer(change))
        {
            Some(Mismatch::Changed(parts)) => parts,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            changed(|offer| offer.description.push(' ')),
            ["description"]
        );
        assert_eq!(
            changed(|offer| offer.input_schema["title"] = json!("x")),
            ["inputSchema"]
        );
        assert_eq!(
            changed(|offer| offer.output_schema = Some(json!({}))),
            ["outputSchema"]
        );
        let hint = |offer: &mut DiscoveredTool| {
            offer
                .annotations
                .extend([("readOnlyHint".to_owned(), json!(true))]);
        };
        assert_eq!(changed(hint), ["annotations"]);
        let both = |offer: &mut DiscoveredTool| {
            offer.annotations.insert("title".into(), json!("Weather"));
            offer.description.clear();
        };
        assert_eq!(changed(both), ["annotations", "description"]);
        let other = offer(|offer| offer.name = "get_more".into());
        assert_eq!(
            pins.find_mismatch(&declaration, &other),
            Some(Mismatch::New)
        );
    }

    #[test]
    fn pins_without_text_approve_the_same_and_other_text_does_not() {
        let declaration = json!({"command": ["npx", "server"]});
        let now = ServerPins::new(&declaration, &[offer(|_| {})]);
        let with_text = |text: Option<DefinitionParts>| {
            let mut before = now.clone();
            before.tools.get_mut("get_weather").unwrap().definition = text;
            [("s".to_owned(), before)].into()
        };
        let servers = [("s".to_owned(), now.clone())].into();
        assert!(approve_the_same(&with_text(None), &servers));
        let other = definition_parts(&offer(|offer| offer.description.push('.')));
        assert!(!approve_the_same(&with_text(Some(other)), &servers));
        assert!(!approve_the_same(&BTreeMap::new(), &servers));
    }

    #[test]
    fn reach_covers_command_environment_and_url() {
        let pins = ServerPins::new(
            &json!({"command": ["npx", "server@1"], "environment": {"PATH": "/a"}, "headers": {}}),
            &[],
        );
        assert!(pins.matches_reach(
            &json!({"command": ["npx", "server@1"], "environment": {"PATH": "/a"}, "headers": {"a": "b"}})
        ));
        for other in [
            json!({"command": ["npx", "server@2"], "environment": {"PATH": "/a"}}),
            json!({"command": ["npx", "server@1"], "environment": {"PATH": "/b:/a"}}),
            json!({"command": ["npx", "server@1"]}),
            json!({"url": "https://e.example"}),
            json!({}),
        ] {
            assert!(!pins.matches_reach(&other), "{other}");
            assert_eq!(
                pins.find_mismatch(&other, &offer(|_| {})),
                Some(Mismatch::Reach)
            );
        }
    }

    #[test]
    fn pins_path_is_beside_the_manifest() {
        for (manifest, lock) in [
            ("toolcrib.yaml", "toolcrib.lock"),
            ("/etc/crib/prod.json", "/etc/crib/prod.lock"),
            ("manifest", "manifest.lock"),
            ("odd.lock", "odd.lock.lock"),
        ] {
            assert_eq!(pins_path(Path::new(manifest)), Path::new(lock));
        }
    }
}
