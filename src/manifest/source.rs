//! What the manifest says of a source of tools.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::call::{EnvVar, JsonObject, Paging, Policy, ToolName};
use crate::pins::ServerPins;
use crate::tools::SourceSettings;

/// A source and the manifest's word on the tools that it brings.
#[derive(Clone, PartialEq)]
pub struct DeclaredSource {
    /// How it is started: when this is another, it is started anew.
    pub settings: SourceSettings,
    /// What is said of its tools: when only this is another, they get new stacks and the source runs on.
    pub rules: SourceRules,
    /// What it runs, as it is written: part of its tools' definition hashes.
    pub written: Value,
    /// Over the same with references replaced: part of cache keys only, for it may be made of secrets.
    pub generation: [u8; 32],
}

/// What is said of the tools of a source.
#[derive(Clone, Default, PartialEq)]
pub struct SourceRules {
    /// Put before every name.
    pub prefix: String,
    /// For tools that are not named.
    pub policy: Policy,
    /// The fields of the caller's context that tools take of which nothing else is said.
    pub context: Option<Vec<String>>,
    /// Variables that it declares, for all its tools.
    pub env: Vec<EnvVar>,
    /// By the source's own name for a tool.
    pub tools: BTreeMap<String, ToolRules>,
    /// Own names that are probably tools too: what the source was asked for.
    pub asked: Vec<String>,
    /// What was approved; a tool that is another is stopped. `None`: nobody has pinned the source.
    pub pins: Option<Arc<ServerPins>>,
}

/// What is said of one of them.
#[derive(Clone, PartialEq)]
pub struct ToolRules {
    /// What the operator decided.
    pub policy: Policy,
    /// In the place of the source's own.
    pub description: Option<String>,
    /// Other names.
    pub aliases: Vec<ToolName>,
    /// Labels.
    pub tags: Vec<String>,
    /// Over the source's own.
    pub annotations: JsonObject,
    /// In the place of the source's own.
    pub result_as_answer: Option<bool>,
    /// Who asks for the parts of long results.
    pub paging: Paging,
    /// The fields of the caller's context that it takes; the source's own declaration included.
    pub context: Option<Vec<String>>,
}

impl DeclaredSource {
    /// A source of the program, of whose tools nothing is said.
    pub fn of_program(settings: SourceSettings) -> Self {
        Self { settings, rules: SourceRules::default(), written: Value::Null, generation: [0; 32] }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.settings.name()
    }
}

impl SourceRules {
    /// Own names of tools that are known before the source has listed them.
    pub fn known(&self) -> impl Iterator<Item = &str> {
        let more = self.asked.iter().filter(|name| !self.tools.contains_key(*name));
        self.tools.keys().chain(more).map(String::as_str)
    }
}
