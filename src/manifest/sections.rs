//! Everything in a manifest but its tools, as the file says it.

use serde::Deserialize;

use crate::call::units::{Size, Time};
use crate::call::{CacheScope, Capture, Effect, EnvVar, Idempotency, Limit, OnDisconnect, Paging};
use crate::ledger::Durability;

/// `server:`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Server {
    pub(super) listen: Option<String>,
    pub(super) max_body: Option<Size>,
    pub(super) max_in_flight: Option<usize>,
    pub(super) linger: Option<Time>,
    pub(super) drain: Option<Time>,
    pub(super) allowed_hosts: Vec<String>,
    pub(super) allowed_origins: Vec<String>,
    pub(super) allow_open: bool,
}

/// `ledger:`
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Ledger {
    pub(super) url: Option<String>,
    pub(super) durability: Durability,
    pub(super) capture: Option<Capture>,
    pub(super) digest_key: Option<String>,
    pub(super) retention: Option<Time>,
    pub(super) max_bytes: Option<Size>,
}

/// `cache:`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Cache {
    pub(super) max_bytes: Option<Size>,
}

/// One of `callers:`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Caller {
    pub(super) name: String,
    pub(super) key: Option<String>,
    pub(super) key_sha256: Option<String>,
    #[serde(default, deserialize_with = "said")]
    pub(super) allow: Option<Vec<String>>,
    #[serde(default)]
    pub(super) deny: Vec<String>,
    #[serde(default)]
    pub(super) limits: Vec<Limit>,
    #[serde(default)]
    pub(super) admin: bool,
    #[serde(default)]
    pub(super) metrics: bool,
}

/// Policy keys, in `defaults:` and in every tool.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PolicyEntry {
    pub(super) effect: Option<Effect>,
    pub(super) timeout: Option<Time>,
    pub(super) deadline: Option<Time>,
    pub(super) retry: Option<Retry>,
    pub(super) limits: Option<Vec<Limit>>,
    pub(super) cache: Option<CacheEntry>,
    pub(super) concurrency: Option<ConcurrencyEntry>,
    pub(super) on_disconnect: Option<OnDisconnect>,
    pub(super) idempotency: Option<Idempotency>,
    pub(super) repeatable: Option<bool>,
    pub(super) strict: Option<bool>,
    pub(super) enabled: Option<bool>,
    pub(super) capture: Option<Capture>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Retry {
    pub(super) attempts: u32,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CacheEntry {
    pub(super) ttl: Time,
    #[serde(default)]
    pub(super) scope: CacheScope,
    pub(super) context: Option<Vec<String>>,
    pub(super) when: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ConcurrencyEntry {
    pub(super) max: Option<usize>,
    pub(super) queue: Option<usize>,
    pub(super) wait: Option<Time>,
    pub(super) per_caller: Option<usize>,
}

/// Definition keys of every tool.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DefinitionEntry {
    pub(super) kind: Option<String>,
    pub(super) description: Option<String>,
    pub(super) parameters: Option<serde_json::Value>,
    pub(super) input_schema: Option<serde_json::Value>,
    pub(super) output_schema: Option<serde_json::Value>,
    pub(super) annotations: Option<crate::call::JsonObject>,
    pub(super) aliases: Vec<String>,
    pub(super) tags: Vec<String>,
    pub(super) env: Vec<EnvVar>,
    pub(super) context: Option<Vec<String>>,
    pub(super) result_as_answer: Option<bool>,
    pub(super) paging: Option<Paging>,
}

/// A native tool's own keys.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct NativeEntry {
    #[serde(rename = "use")]
    pub(super) which: Option<String>,
    pub(super) with: crate::call::JsonObject,
    pub(super) workdir: Option<std::path::PathBuf>,
}

/// A list that was written down, however short: nothing is not a list, and allows nothing by mistake for everything.
fn said<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Vec<String>>, D::Error> {
    Vec::deserialize(from).map(Some)
}
