//! What the manifest says of an agent.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::coworkers::misnamed;
use crate::call::JsonObject;
use crate::call::units::Time;
use crate::tools::ConfigFault;

/// Most turns that a manifest may ask for: beyond that nobody reads along any more.
const MOST_TURNS: u32 = 100;
/// Most levels of calls below one that somebody asked for.
const MOST_LEVELS: u32 = 8;

/// The keys of the kind.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Which model, and where.
    pub model: ModelConfig,
    /// The system prompt.
    #[serde(default)]
    pub system: Option<String>,
    /// The user's message, with `{{ name }}` placeholders. Default: `task` and `context`, else the arguments as JSON.
    #[serde(default)]
    pub prompt: Option<String>,
    /// Tools that it may use, by name; `*` stands for any characters. None unless named.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Agents that its model may delegate work to and ask, by name.
    #[serde(default)]
    pub coworkers: Vec<String>,
    /// Requests to the model in one call. Default 8.
    #[serde(default)]
    pub max_turns: Option<u32>,
    /// Levels of calls below this one. Default 3; an agent below another has no more than that one leaves it.
    #[serde(default)]
    pub depth: Option<u32>,
    /// What one call may cost.
    #[serde(default)]
    pub budget: Budget,
    /// The tool's own key, which the model is told of.
    #[serde(default)]
    pub output_schema: Option<Value>,
}

/// `model:`: an endpoint that speaks OpenAI Chat Completions.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// What `/chat/completions` is put behind. The operator's word: no address is out of reach.
    pub base_url: String,
    /// The model's name there.
    pub name: String,
    /// Sent as a bearer token.
    #[serde(default)]
    pub key: Option<String>,
    /// Have the answer streamed.
    #[serde(default)]
    pub stream: bool,
    /// As in the API.
    #[serde(default)]
    pub temperature: Option<f64>,
    /// As in the API; where that wants `max_completion_tokens`, say so in `options`.
    #[serde(default)]
    pub max_tokens: Option<u64>,
    /// Further header fields.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Further fields of the request's body, as they are.
    #[serde(default)]
    pub options: JsonObject,
}

/// `budget:`.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Budget {
    /// Tokens read and written, those of agents that it calls included. Counted after each answer of the model.
    pub tokens: Option<u64>,
    /// Time, before the call's own timeout and deadline.
    pub time: Option<Time>,
}

impl Config {
    /// Numbers and names that cannot be meant.
    pub(super) fn faults(&self) -> Vec<ConfigFault> {
        let mut faults = Vec::new();
        let mut out_of = |value: Option<u32>, most: u32, key: &str| {
            if value.is_some_and(|value| !(1..=most).contains(&value)) {
                faults.push(ConfigFault::error(&[key], format!("a number from 1 to {most} is expected here")));
            }
        };
        out_of(self.max_turns, MOST_TURNS, "max_turns");
        out_of(self.depth, MOST_LEVELS, "depth");
        if self.budget.tokens == Some(0) {
            faults.push(ConfigFault::error(&["budget", "tokens"], "a budget of nothing lets no model answer"));
        }
        if self.budget.time.is_some_and(|time| time.0.is_zero()) {
            faults.push(ConfigFault::error(&["budget", "time"], "a budget of nothing lets no model answer"));
        }
        faults.extend(misnamed(&self.coworkers).map(|(at, message)| ConfigFault::error(&["coworkers", &at], message)));
        faults
    }
}
