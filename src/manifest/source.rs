//! The manifest's settings for a source of tools.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::context::add_context_to_cache_key;
use super::policy::PolicyRules;
use crate::call::{Effect, EnvVar, JsonObject, Kind, Paging, Policy, ToolName};
use crate::manifest::pins::ServerPins;
use crate::sources::SourceSettings;

/// A source, and the manifest's rules for the tools that it brings.
#[derive(Clone, PartialEq)]
pub struct DeclaredSource {
    /// How it is started. If this changes, the source is restarted.
    pub settings: SourceSettings,
    /// The rules for its tools. If only this changes, the tools get new stacks and the source keeps
    /// running.
    pub rules: SourceRules,
    /// What it runs, as written. It is part of the definition hashes of its tools.
    pub written_settings: Value,
    /// A hash of the same settings with references replaced. It may depend on secrets, so it is
    /// only part of cache keys.
    pub generation: [u8; 32],
}

/// The rules for the tools of a source.
#[derive(Clone, Default, PartialEq)]
pub struct SourceRules {
    /// The prefix of every tool name.
    pub prefix: String,
    /// The policies of its tools.
    pub policies: PolicyRules,
    /// Whether the hints of a pinned server decide the effect of tools that have none in the
    /// manifest.
    pub trust_hints: bool,
    /// The context fields of tools without a list of their own.
    pub context: Option<Vec<String>>,
    /// The declared variables, which apply to all its tools.
    pub env: Vec<EnvVar>,
    /// The rules of single tools, by the source's own name of the tool.
    pub tools: BTreeMap<String, ToolRules>,
    /// Further own names of tools that the source is expected to have.
    pub expected_tools: Vec<String>,
    /// The approved definitions. A tool whose definition differs is quarantined. `None` if the
    /// source is not pinned.
    pub pins: Option<Arc<ServerPins>>,
}

/// The rules for one tool of a source, besides its policy.
#[derive(Clone, PartialEq)]
pub struct ToolRules {
    /// Replaces the source's own description.
    pub description: Option<String>,
    /// Further names of the tool.
    pub aliases: Vec<ToolName>,
    /// Labels by which tools are filtered.
    pub tags: Vec<String>,
    /// These take precedence over the source's own annotations.
    pub annotations: JsonObject,
    /// Replaces the source's own setting.
    pub result_as_answer: Option<bool>,
    /// Which side requests the parts of long results.
    pub paging: Paging,
    /// The context fields that the tool takes, including those that the source itself declares.
    pub context: Option<Vec<String>>,
}

impl DeclaredSource {
    /// A source of the embedding program, without rules for its tools.
    pub fn from_program(settings: SourceSettings) -> Self {
        Self {
            settings,
            rules: SourceRules::default(),
            written_settings: Value::Null,
            generation: [0; 32],
        }
    }

    /// The name of the source.
    pub fn name(&self) -> &str {
        self.settings.name()
    }
}

impl SourceRules {
    /// The policy of a tool. `derived_effect` is the effect that the source itself knows.
    pub fn policy_for(&self, own_name: &str, kind: Kind, derived_effect: Option<Effect>) -> Policy {
        let mut policy = self.policies.policy_for(own_name, kind, derived_effect);
        let context = self
            .tools
            .get(own_name)
            .map_or(&self.context, |rules| &rules.context);
        // Only the tool's own entry may choose fewer fields for the key: a cache of many tools does
        // not know their context.
        let own = self
            .policies
            .exact
            .get(own_name)
            .cloned()
            .unwrap_or_default();
        add_context_to_cache_key(&mut policy, &own, context.as_deref());
        policy
    }

    /// Whether an entry of the source gives the tool a cache, and not only the manifest's defaults.
    pub fn declares_cache(&self, own_name: &str) -> bool {
        self.policies.entry_for(own_name).cache.is_some()
    }

    /// The source's own names of tools that are known before the source is listed.
    pub fn known_tools(&self) -> impl Iterator<Item = &str> {
        let more = self
            .expected_tools
            .iter()
            .filter(|name| !self.tools.contains_key(*name));
        self.tools.keys().chain(more).map(String::as_str)
    }
}
