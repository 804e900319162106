//! Agents that the embedding program declares.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::config::{Config, ModelConfig};
use super::{add_default_parameters, build};
use crate::call::canonical::canonical_json;
use crate::call::json::hash_parts;
use crate::call::units::HumanDuration;
use crate::call::{Kind, Policy};
use crate::kinds::{BuildContext, BuildError, HttpClients, Tool};

/// A model with a prompt and tools of its own, for [`Agent::as_tool`]. It does what an entry
/// `kind: agent` of a manifest does, with the same defaults.
///
/// ```no_run
/// # async fn example(key: String) -> Result<(), toolcrib::Error> {
/// use toolcrib::{Agent, App, Limit, LimitScope, Per};
///
/// let researcher = Agent::new("https://api.example.com/v1", "model-1")
///     .key(key)
///     .system("You answer in one sentence.")
///     .tools(["search_*", "calculator"])
///     .as_tool("researcher", "Answers a question about the company with its sources.")
///     .limit(Limit { calls: 50, per: Per::Day, scope: LimitScope::Caller });
/// let app = App::builder().agent(researcher).build().await?;
/// # app.serve().await
/// # }
/// ```
#[derive(Clone)]
pub struct Agent(Config);

impl Agent {
    /// An agent with this model, at an endpoint that speaks OpenAI Chat Completions.
    /// `/chat/completions` is appended to `base_url`.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        let model = ModelConfig {
            base_url: base_url.into(),
            name: model.into(),
            ..ModelConfig::default()
        };
        Self(Config {
            model,
            ..Config::default()
        })
    }

    /// The key, which is sent as a bearer token. No text or error of a tool shows it.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.0.model.key = Some(key.into());
        self
    }

    /// An additional header field of requests to the model. Its value is as secret as the key.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.model.headers.insert(name.into(), value.into());
        self
    }

    /// An additional field of the body of requests to the model, such as `max_completion_tokens`.
    #[must_use]
    pub fn option(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.model.options.insert(name.into(), value.into());
        self
    }

    /// The sampling temperature, as the API defines it.
    #[must_use]
    pub fn temperature(mut self, temperature: f64) -> Self {
        self.0.model.temperature = Some(temperature);
        self
    }

    /// Requests streamed answers, so that progress events carry the text while it arrives.
    #[must_use]
    pub fn stream(mut self) -> Self {
        self.0.model.stream = true;
        self
    }

    /// The system prompt.
    #[must_use]
    pub fn system(mut self, prompt: impl Into<String>) -> Self {
        self.0.system = Some(prompt.into());
        self
    }

    /// The user's message, with `{{ name }}` placeholders. Default: `task` and `context`, else the
    /// arguments as JSON.
    #[must_use]
    pub fn prompt(mut self, template: impl Into<String>) -> Self {
        self.0.prompt = Some(template.into());
        self
    }

    /// Tools that the model may use, by name; `*` stands for any characters. Default: none.
    #[must_use]
    pub fn tools<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.0.tools.extend(names.into_iter().map(Into::into));
        self
    }

    /// Agents that the model may delegate work to and ask, by name.
    #[must_use]
    pub fn coworkers<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.0.coworkers.extend(names.into_iter().map(Into::into));
        self
    }

    /// Requests to the model in one call, from 1 to 100. Default: 8.
    #[must_use]
    pub fn max_turns(mut self, turns: u32) -> Self {
        self.0.max_turns = Some(turns);
        self
    }

    /// Levels of nested calls below a call of this agent, from 1 to 8. Default: 3.
    #[must_use]
    pub fn depth(mut self, levels: u32) -> Self {
        self.0.depth = Some(levels);
        self
    }

    /// Tokens that one call may use, with those of agents that it calls. Default: no bound.
    #[must_use]
    pub fn budget_tokens(mut self, tokens: u64) -> Self {
        self.0.budget.tokens = Some(tokens);
        self
    }

    /// Time that one call may take. Default: the tool's timeout.
    #[must_use]
    pub fn budget_time(mut self, time: Duration) -> Self {
        self.0.budget.time = Some(HumanDuration(time));
        self
    }

    /// Makes a tool of the agent, with the parameters `task` and `context` (optional). The tool's
    /// other methods set its policy. [`Tool::input_schema`] sets other parameters, and the model
    /// receives [`Tool::output_schema`].
    pub fn as_tool(self, name: impl Into<String>, description: impl Into<String>) -> Tool<Self> {
        let mut tool = add_default_parameters(Tool::new(name, description));
        tool.kind = Kind::Agent;
        tool.replace_runner(self).0
    }

    /// The part of the definition hash that the tool's definition does not show. It contains no
    /// secrets.
    fn implementation(&self) -> Value {
        let Config {
            model,
            system,
            prompt,
            tools,
            coworkers,
            max_turns,
            depth,
            budget,
            output_schema: _,
        } = &self.0;
        let ModelConfig {
            base_url,
            name,
            stream,
            temperature,
            max_tokens,
            options,
            key: _,
            headers: _,
        } = model;
        json!({
            "model": {"base_url": base_url, "name": name, "stream": stream, "temperature": temperature,
                "max_tokens": max_tokens, "options": options},
            "system": system, "prompt": prompt, "tools": tools, "coworkers": coworkers, "max_turns": max_turns, "depth": depth,
            "budget": {"tokens": budget.tokens, "time_ms": budget.time.map(|time| time.0.as_millis().to_string())},
        })
    }
}

impl Tool<Agent> {
    /// The tool with its runner, for [`Registry::register`](crate::Registry::register).
    /// [`AppBuilder::agent`](crate::AppBuilder::agent) builds the agent itself. It also keeps the
    /// agent from calling the service to which it belongs.
    ///
    /// # Errors
    /// [`BuildError`]: a setting of the agent is invalid.
    pub fn build(self) -> Result<Tool, BuildError> {
        self.build_with(&HttpClients::default())
    }

    /// Like [`build`](Self::build), with these HTTP clients.
    pub(crate) fn build_with(self, clients: &HttpClients) -> Result<Tool, BuildError> {
        let (mut tool, agent) = self.replace_runner(());
        let context = BuildContext {
            name: tool.definition.name.as_str(),
            base_dir: Path::new(""),
            input_schema: &tool.definition.input_schema,
            context_fields: tool.definition.context.as_deref().unwrap_or_default(),
            effect: tool.policy.effect,
            trusted: true,
        };
        let mut config = agent.0.clone();
        config.output_schema = tool.definition.output_schema.as_deref().cloned();
        let (runner, warnings) = build(config, &context, clients).map_err(|faults| {
            let faults = faults.iter().filter(|fault| !fault.warning);
            let faults: Vec<String> = faults
                .map(|fault| format!("{}: {}", fault.path.join("."), fault.message))
                .collect();
            BuildError::InvalidAgent {
                tool: tool.name().to_owned(),
                faults: faults.join("; "),
            }
        })?;
        for warning in warnings {
            tracing::warn!(
                tool = tool.name(),
                "{}: {}",
                warning.path.join("."),
                warning.message
            );
        }
        if tool.policy.timeout == Policy::default().timeout {
            tool.policy.timeout = runner.default_timeout().unwrap_or(tool.policy.timeout);
        }
        let ModelConfig { key, headers, .. } = agent.0.model.clone();
        let implementation = agent.implementation();
        tool.settings.generation = hash_parts([
            canonical_json(&implementation).as_slice(),
            &canonical_json(&json!([key, headers])),
        ]);
        tool.settings.implementation = Some(implementation);
        tool.settings.secrets = key.into_iter().chain(headers.into_values()).collect();
        Ok(tool.with_runner(runner))
    }
}
