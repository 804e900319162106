//! The manifest's settings of an agent.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::coworkers::invalid_names;
use crate::call::JsonObject;
use crate::call::units::HumanDuration;
use crate::kinds::ConfigFault;

/// Most turns that a manifest may set. Longer runs are hardly supervised by anyone.
const MAX_MAX_TURNS: u32 = 100;
/// Highest `depth` that a manifest may set.
const MAX_DEPTH: u32 = 8;

/// The keys of the kind.
#[derive(Clone, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The model and its endpoint.
    pub model: ModelConfig,
    /// The system prompt.
    #[schemars(extend("examples" = ["You are a careful mathematician."]))]
    pub system: Option<String>,
    /// The user's message, with `{{ name }}` placeholders. Default: `task` and `context`, else the
    /// arguments as JSON.
    #[schemars(extend("examples" = ["Translate into {{ language }}: {{ text }}"]))]
    pub prompt: Option<String>,
    /// Tools of this service that the agent may use; `*` stands for any characters. Default: no
    /// tools.
    #[serde(default)]
    #[schemars(extend("examples" = [["calculator"]]))]
    pub tools: Vec<String>,
    /// Agents to which the model may delegate work, by name.
    #[serde(default)]
    #[schemars(extend("examples" = [["researcher"]]))]
    pub coworkers: Vec<String>,
    /// Requests to the model in one call, at most 100.
    #[schemars(extend("examples" = [4]), extend("default" = 8))]
    pub max_turns: Option<u32>,
    /// Levels of calls below a call of the agent, at most 8. An agent below another has at most
    /// what that one has left.
    #[schemars(extend("examples" = [2]), extend("default" = 3))]
    pub depth: Option<u32>,
    /// Bounds of what one call may cost.
    #[serde(default)]
    #[schemars(extend("examples" = [serde_json::json!({"tokens": 20000, "time": "60s"})]))]
    pub budget: Budget,
    /// The tool's own `output_schema`, which the model receives.
    pub output_schema: Option<Value>,
}

/// `model:`: an endpoint that speaks OpenAI Chat Completions.
#[derive(Clone, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Address of the API; the service appends `/chat/completions`. Private addresses are allowed
    /// here.
    #[schemars(extend("examples" = ["http://127.0.0.1:11434/v1"]))]
    pub base_url: String,
    /// Name of the model.
    #[schemars(extend("examples" = ["some-model"]))]
    pub name: String,
    /// Key of the API, sent as a bearer token.
    #[schemars(extend("examples" = ["${env:MODEL_KEY}"]))]
    pub key: Option<String>,
    /// Requests a streamed response, so that progress events carry its text.
    #[serde(default)]
    #[schemars(extend("examples" = [true]))]
    pub stream: bool,
    /// The API's `temperature`.
    #[schemars(extend("examples" = [0]))]
    pub temperature: Option<f64>,
    /// The API's `max_tokens`. For an API with `max_completion_tokens`, use `options`.
    #[schemars(extend("examples" = [2000]))]
    pub max_tokens: Option<u64>,
    /// Further header fields of each request.
    #[serde(default)]
    #[schemars(extend("examples" = [serde_json::json!({"x-team": "support"})]))]
    pub headers: BTreeMap<String, String>,
    /// Further fields of each request's body.
    #[serde(default)]
    #[schemars(extend("examples" = [serde_json::json!({"max_completion_tokens": 2000})]))]
    pub options: JsonObject,
}

/// `budget:`.
#[derive(Debug, Clone, Copy, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Budget {
    /// Input and output tokens, with those of agents that the agent calls. Counted after each
    /// response of the model.
    #[schemars(extend("examples" = [20000]))]
    pub tokens: Option<u64>,
    /// Time for all turns together.
    #[schemars(extend("examples" = ["60s"]))]
    pub time: Option<HumanDuration>,
}

impl Config {
    /// Faults: numbers out of range, and invalid names.
    pub(super) fn config_faults(&self) -> Vec<ConfigFault> {
        let mut faults = Vec::new();
        let mut out_of = |value: Option<u32>, most: u32, key: &str| {
            if value.is_some_and(|value| !(1..=most).contains(&value)) {
                faults.push(ConfigFault::error(
                    &[key],
                    format!("a number from 1 to {most} is expected here"),
                ));
            }
        };
        out_of(self.max_turns, MAX_MAX_TURNS, "max_turns");
        out_of(self.depth, MAX_DEPTH, "depth");
        for (key, is_zero) in [
            ("tokens", self.budget.tokens == Some(0)),
            (
                "time",
                self.budget.time.is_some_and(|time| time.0.is_zero()),
            ),
        ] {
            if is_zero {
                let message = "the budget must be greater than zero";
                faults.push(ConfigFault::error(&["budget", key], message));
            }
        }
        faults.extend(
            invalid_names(&self.coworkers)
                .map(|(at, message)| ConfigFault::error(&["coworkers", &at], message)),
        );
        faults
    }
}
