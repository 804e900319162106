//! An entry, and its hash.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use sha2::{Digest, Sha256};

/// The actor of what the operator does on the machine, without a request: editing the manifest, pinning.
pub const OPERATOR: &str = "operator";

/// What was done.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Deserialize,
    utoipa::ToSchema,
    strum::IntoStaticStr,
    strum::EnumString,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Action {
    /// A tool was switched on.
    ToolEnabled,
    /// A tool was switched off.
    ToolDisabled,
    /// A tool was registered or replaced over HTTP.
    ToolRegistered,
    /// A registered tool was removed.
    ToolUnregistered,
    /// The counters of a tool's limits were reset.
    LimitsReset,
    /// Stored results were deleted.
    CachePurged,
    /// A call that waited for a person was approved.
    CallApproved,
    /// A call that waited for a person was denied.
    CallDenied,
    /// A source was restarted over HTTP.
    SourceRestarted,
    /// The service uses new pins of a server.
    ServerPinned,
    /// A changed manifest took effect.
    ManifestReloaded,
    /// The key of a caller was used for the first time.
    KeyFirstUsed,
}

impl Action {
    /// The name in the ledger and in answers.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether the action has happened, if its statement changed this number of rows.
    pub(crate) fn has_happened(self, rows: u64) -> bool {
        let needs_a_row = matches!(
            self,
            Self::ToolUnregistered | Self::CallApproved | Self::CallDenied
        );
        !needs_a_row || rows > 0
    }

    /// Whether there is no entry if the newest one with this action and subject has the same details.
    pub(crate) fn is_noted_once(self) -> bool {
        matches!(self, Self::KeyFirstUsed | Self::ServerPinned)
    }
}

/// An entry that is to be appended.
#[derive(Debug, Clone)]
pub struct NewEntry {
    /// What was done.
    pub action: Action,
    /// The caller that did it, or [`OPERATOR`].
    pub actor: String,
    /// When.
    pub at: Timestamp,
    /// Further facts, without secrets.
    pub detail: BTreeMap<&'static str, Value>,
    /// The tool, source, caller or call. `None`: all.
    pub subject: Option<String>,
}

impl NewEntry {
    /// An entry without details.
    pub fn new(at: Timestamp, actor: &str, action: Action, subject: Option<&str>) -> Self {
        // Tools escape control characters in JSON differently, and PostgreSQL stores no NUL.
        let clean = |text: &str| text.replace(|c: char| c.is_control(), "\u{fffd}");
        Self {
            action,
            actor: clean(actor),
            at: Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at),
            detail: BTreeMap::new(),
            subject: subject.map(clean),
        }
    }

    /// The same with one more detail.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.detail.insert(name, value.into());
        self
    }

    /// The details as JSON, with sorted keys.
    pub(crate) fn detail_text(&self) -> String {
        serde_json::to_string(&self.detail).unwrap_or_default()
    }

    /// The entry that follows the one with this number and hash.
    pub(crate) fn follow(self, seq: u64, previous: &str) -> Entry {
        let entry = Entry {
            action: self.action.as_str().to_owned(),
            actor: self.actor,
            at: self.at,
            detail: to_raw_value(&self.detail).unwrap_or_default(),
            hash: String::new(),
            seq: seq + 1,
            subject: self.subject,
        };
        Entry {
            hash: entry.hash_after(previous),
            ..entry
        }
    }
}

/// An entry of the record.
// The fields have the order of their names: the hash is over this JSON, without `hash`.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Entry {
    /// What was done.
    #[schema(examples("tool_disabled"))]
    pub action: String,
    /// The caller that did it, or `operator`: a person on the machine of the service.
    pub actor: String,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Further facts.
    #[schema(value_type = std::collections::HashMap<String, serde_json::Value>)]
    pub detail: Box<RawValue>,
    /// SHA-256 over the hash of the entry before, a line feed, and this object without `hash`, as JSON with
    /// sorted keys and no white space.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(required)]
    pub hash: String,
    /// Number of the entry, from 1.
    pub seq: u64,
    /// The tool, source, caller or call; null: all tools, or the manifest.
    #[schema(required)]
    pub subject: Option<String>,
}

impl Entry {
    /// The hash of this entry, if it follows the one with the hash `previous`.
    pub fn hash_after(&self, previous: &str) -> String {
        let unhashed = Self {
            hash: String::new(),
            ..self.clone()
        };
        let line = serde_json::to_string(&unhashed).unwrap_or_default();
        hex::encode(Sha256::digest(format!("{previous}\n{line}")))
    }
}

/// What stands for the hash before the first entry: 64 zeros.
pub fn first_hash() -> String {
    "0".repeat(64)
}
