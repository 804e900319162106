//! From a manifest's entry to a runner: the one place that knows all kinds.

use std::sync::Arc;

use schemars::{JsonSchema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_aux::serde_introspection::serde_introspect;
use serde_json::Value;

use super::{BuildContext, ConfigFault, Runner, Tool, agent, command, http, sql};
use crate::call::{Effect, Kind};

/// A runner and what is odd about it, or everything that keeps it from being built.
pub type Built = Result<(Arc<dyn Runner>, Vec<ConfigFault>), Vec<ConfigFault>>;

/// The kinds that an entry of `tools:` may have; the others come out of sections of their own.
pub const OF_ENTRIES: [Kind; 5] = [Kind::Native, Kind::Command, Kind::Http, Kind::Sql, Kind::Agent];

/// The kind of that word, if an entry of `tools:` may have it.
pub fn from_word(word: &str) -> Option<Kind> {
    OF_ENTRIES.into_iter().find(|kind| kind.as_str() == word)
}

/// What a tool of this kind is before its entry says anything: an agent takes a task, a statement only reads (its database
/// sees to that).
pub fn blank(kind: Kind, name: &str) -> Tool<()> {
    let mut tool = Tool::new(name, "");
    tool.kind = kind;
    match kind {
        Kind::Agent => agent::parameters(tool),
        Kind::Sql => tool.effect(Effect::Read),
        Kind::Native | Kind::Command | Kind::Http | Kind::Python | Kind::Mcp => tool,
    }
}

/// The keys that an entry of this kind has beside those of every tool.
pub fn keys(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Native => &["use", "with", "workdir"],
        Kind::Command => serde_introspect::<command::Config>(),
        Kind::Http => serde_introspect::<http::Config>(),
        Kind::Sql => serde_introspect::<sql::Config>(),
        Kind::Agent => serde_introspect::<agent::Config>(),
        Kind::Python | Kind::Mcp => &[],
    }
}

/// The JSON Schema of the keys that an entry of this kind has beside those of every tool.
pub fn schema(kind: Kind, generator: &mut SchemaGenerator) -> schemars::Schema {
    match kind {
        Kind::Command => command::Config::json_schema(generator),
        Kind::Http => http::Config::json_schema(generator),
        Kind::Sql => sql::Config::json_schema(generator),
        Kind::Agent => agent::Config::json_schema(generator),
        Kind::Native | Kind::Python | Kind::Mcp => schemars::Schema::default(),
    }
}

/// Builds the runner from the kind's own keys. Native tools are not built from a manifest: `None`.
pub fn build(kind: Kind, config: Value, context: &BuildContext<'_>) -> Option<Built> {
    match kind {
        Kind::Native | Kind::Python | Kind::Mcp => None,
        Kind::Command => Some(decode(config, &[]).and_then(|config| command::build(config, context))),
        Kind::Http => Some(decode(config, &[]).and_then(|config| match http::build(config, context) {
            (Some(runner), notes) => Ok((runner, notes)),
            (None, notes) => Err(notes),
        })),
        Kind::Sql => Some(decode(config, &[]).and_then(|config| sql::build(config, context))),
        Kind::Agent => Some(decode(config, &[]).and_then(|config| agent::build(config, context))),
    }
}

/// Reads settings that stand under `prefix`, keeping the path of what does not fit.
pub(super) fn decode<T: DeserializeOwned>(config: Value, prefix: &[&str]) -> Result<T, Vec<ConfigFault>> {
    serde_path_to_error::deserialize(config).map_err(|error| {
        let keys = error.path().iter().map(ToString::to_string).filter(|key| key != "?");
        let path = prefix.iter().map(|&key| key.to_owned()).chain(keys);
        // Sequence positions print as `[2]`; paths have them bare.
        let path = path.map(|key| key.trim_matches(['[', ']']).to_owned()).collect();
        vec![ConfigFault { path, message: error.inner().to_string(), warning: false }]
    })
}
