//! Builds the runners of all kinds from manifest entries.
//!
//! Code of a kind that this program was not built with is compiled, too. Nothing calls it, so the
//! linker leaves it out. That keeps the conditions few: they are in this file.

use schemars::{JsonSchema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_aux::serde_introspection::serde_introspect;
use serde_json::Value;

use super::sandbox::SandboxDefaults;
use super::{
    BuildContext, BuildResult, ConfigFault, Databases, FaultRule, HttpClients, Tool, agent,
    command, http, sql,
};
use crate::call::{Effect, Kind};
use crate::settings::{self, SettingFault, SettingFaultKind};

/// The kinds that an entry of `tools:` may have. The other kinds have sections of their own.
pub const MANIFEST_KINDS: [Kind; 5] = [
    Kind::Native,
    Kind::Command,
    Kind::Http,
    Kind::Sql,
    Kind::Agent,
];

/// The kind with this name, if an entry of `tools:` may have it.
pub fn parse_manifest_kind(word: &str) -> Option<Kind> {
    MANIFEST_KINDS
        .into_iter()
        .find(|kind| kind.as_str() == word)
}

/// A tool of this kind with the defaults of the kind. An agent has the parameters of a task. A
/// statement only reads (its database enforces that).
pub fn tool_with_defaults(kind: Kind, name: &str) -> Tool<()> {
    let mut tool = Tool::new(name, "");
    tool.kind = kind;
    match kind {
        Kind::Agent => agent::add_default_parameters(tool),
        Kind::Sql => tool.effect(Effect::Read),
        Kind::Native | Kind::Command | Kind::Http | Kind::Python | Kind::Typescript | Kind::Mcp => {
            tool
        }
    }
}

/// The keys of an entry of this kind, without the keys of every tool.
pub fn manifest_keys(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Native => &["use", "with", "workdir"],
        Kind::Command => serde_introspect::<command::Config>(),
        Kind::Http => serde_introspect::<http::Config>(),
        Kind::Sql => serde_introspect::<sql::Config>(),
        Kind::Agent => serde_introspect::<agent::Config>(),
        Kind::Python | Kind::Typescript | Kind::Mcp => &[],
    }
}

/// The JSON Schema of the keys of an entry of this kind, without the keys of every tool.
pub fn manifest_schema(kind: Kind, generator: &mut SchemaGenerator) -> schemars::Schema {
    match kind {
        Kind::Command => command::Config::json_schema(generator),
        Kind::Http => http::Config::json_schema(generator),
        Kind::Sql => sql::Config::json_schema(generator),
        Kind::Agent => agent::Config::json_schema(generator),
        Kind::Native | Kind::Python | Kind::Typescript | Kind::Mcp => schemars::Schema::default(),
    }
}

/// Builds the runner from the kind's own keys. It shares the clients and databases with the runners
/// that got them before. `None` for kinds that are not built from an entry: native, Python,
/// TypeScript and MCP tools.
pub fn build_runner(
    kind: Kind,
    config: Value,
    context: &BuildContext<'_>,
    clients: &HttpClients,
    databases: &Databases,
    sandboxes: &SandboxDefaults,
) -> Option<BuildResult> {
    match kind {
        Kind::Native | Kind::Python | Kind::Typescript | Kind::Mcp => None,
        Kind::Command if cfg!(feature = "command") => {
            let config = decode_settings(&config, &[]);
            Some(config.and_then(|config| command::build(config, context, sandboxes)))
        }
        Kind::Http if cfg!(feature = "http") => Some(
            decode_settings(&config, &[]).and_then(|config| http::build(config, context, clients)),
        ),
        Kind::Sql if cfg!(feature = "sql") => Some(
            decode_settings(&config, &[]).and_then(|config| sql::build(config, context, databases)),
        ),
        Kind::Agent if cfg!(feature = "agent") => Some(
            decode_settings(&config, &[]).and_then(|config| agent::build(config, context, clients)),
        ),
        Kind::Command | Kind::Http | Kind::Sql | Kind::Agent => {
            let message = missing_feature(kind)?;
            Some(Err(vec![ConfigFault::error(&["kind"], message)]))
        }
    }
}

/// Decodes settings below `prefix`. Each fault has the path of the key that does not fit.
pub(super) fn decode_settings<T: DeserializeOwned + JsonSchema>(
    config: &Value,
    prefix: &[&str],
) -> Result<T, Vec<ConfigFault>> {
    let fault = |fault: SettingFault| {
        let rule = match fault.kind {
            SettingFaultKind::Value | SettingFaultKind::ListForMap => FaultRule::Unspecified,
            SettingFaultKind::UnknownKey => FaultRule::UnknownKey,
            SettingFaultKind::MissingKey => FaultRule::MissingKey,
        };
        let path = prefix
            .iter()
            .map(|&key| key.to_owned())
            .chain(fault.path)
            .collect();
        ConfigFault {
            path,
            rule,
            ..ConfigFault::error(&[], fault.message)
        }
    };
    settings::decode(config).map_err(|faults| faults.into_iter().map(fault).collect())
}

/// Why tools of this kind cannot be used in this program, if it was built without the kind's cargo
/// feature.
pub(crate) fn missing_feature(kind: Kind) -> Option<String> {
    let is_built_in = match kind {
        Kind::Native => true,
        Kind::Command => cfg!(feature = "command"),
        Kind::Http => cfg!(feature = "http"),
        Kind::Python => cfg!(feature = "python"),
        Kind::Typescript => cfg!(feature = "typescript"),
        Kind::Mcp => cfg!(feature = "mcp"),
        Kind::Sql => cfg!(feature = "sql"),
        Kind::Agent => cfg!(feature = "agent"),
    };
    let kind = kind.as_str();
    (!is_built_in).then(|| {
        format!("kind {kind} is not in this program: build it with the cargo feature `{kind}`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_features_are_named() {
        for (kind, is_built_in) in [
            (Kind::Native, true),
            (Kind::Command, cfg!(feature = "command")),
            (Kind::Http, cfg!(feature = "http")),
            (Kind::Python, cfg!(feature = "python")),
            (Kind::Typescript, cfg!(feature = "typescript")),
            (Kind::Mcp, cfg!(feature = "mcp")),
            (Kind::Sql, cfg!(feature = "sql")),
            (Kind::Agent, cfg!(feature = "agent")),
        ] {
            let message = missing_feature(kind);
            assert_eq!(message.is_none(), is_built_in, "{kind:?}");
            let names_feature =
                |message: String| message.contains(&format!("feature `{}`", kind.as_str()));
            assert!(message.is_none_or(names_feature), "{kind:?}");
        }
    }
}
