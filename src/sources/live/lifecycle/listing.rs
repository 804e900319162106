//! The usable part of what a source has listed.

use serde_json::json;

use super::tools::shown_name;
use crate::call::ToolName;
use crate::manifest::DeclaredSource;
use crate::sources::{DiscoveredTool, SourceListing, ToolDefinitionSnapshot};

impl SourceListing {
    /// Leaves out the tools of a foreign source whose names are invalid, because the operator
    /// cannot rename them. Tools of other sources are all kept, so that their author sees the error
    /// at once.
    pub(super) fn without_invalid_names(mut self, declared: &DeclaredSource) -> Self {
        let prefix = &declared.rules.prefix;
        for tool in std::mem::take(&mut self.tools) {
            match ToolName::parse(&format!("{prefix}{}", tool.name)) {
                Err(error) if declared.settings.may_lose_tools() => {
                    let shown = shown_name(&tool.name);
                    self.warnings.push(format!(
                        "the tool `{shown}` is left out: {error}, `{prefix}` included; rename it on its server, or add it to \
                         `exclude` to silence this warning"
                    ));
                    self.skipped_names.push(tool.name);
                }
                Ok(_) | Err(_) => self.tools.push(tool),
            }
        }
        self
    }

    /// Whether another listing has the same tools and warnings. Their runners may differ.
    pub(super) fn has_same_tools(&self, other: &Self) -> bool {
        let same = self.tools.len() == other.tools.len() && self.warnings == other.warnings;
        same && self
            .tools
            .iter()
            .zip(&other.tools)
            .all(|(one, other)| is_same_tool(one, other) && has_same_key_order(one, other))
    }

    /// Takes over the runners of unchanged tools from an earlier listing of the same source. Equal
    /// runners let the tools keep their stacks.
    pub(super) fn keep_runners(&mut self, before: &Self) {
        for tool in &mut self.tools {
            if let Some(same) = before
                .tools
                .iter()
                .find(|before| is_same_tool(before, tool))
            {
                tool.runner = same.runner.clone();
                tool.snapshot.clone_from(&same.snapshot);
            }
        }
    }
}

/// JSON objects are equal regardless of order, but a model reads the members in their order.
fn has_same_key_order(one: &DiscoveredTool, other: &DiscoveredTool) -> bool {
    let text = |tool: &DiscoveredTool| {
        json!([
            tool.input_schema,
            tool.output_schema,
            tool.annotations,
            tool.meta
        ])
        .to_string()
    };
    text(one) == text(other)
}

fn is_same_tool(one: &DiscoveredTool, other: &DiscoveredTool) -> bool {
    let DiscoveredTool {
        name,
        description,
        input_schema,
        output_schema,
        schema_owner,
        effect,
        tags,
        annotations,
        meta,
        result_as_answer,
        max_calls,
        env,
        runner: _,
        snapshot,
    } = one;
    let fingerprint = |snapshot: &Option<ToolDefinitionSnapshot>| {
        snapshot
            .as_ref()
            .map(|snapshot| snapshot.fingerprint.clone())
    };
    (name, description, input_schema) == (&other.name, &other.description, &other.input_schema)
        && (output_schema, annotations) == (&other.output_schema, &other.annotations)
        && (schema_owner, effect, tags) == (&other.schema_owner, &other.effect, &other.tags)
        && *meta == other.meta
        && (result_as_answer, max_calls, env) == (&other.result_as_answer, &other.max_calls, &other.env)
        // The fingerprint covers the definition before secrets are removed. A change of a removed
        // part is found only here.
        && fingerprint(snapshot) == fingerprint(&other.snapshot)
}
