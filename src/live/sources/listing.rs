//! The usable part of what a source has listed.

use serde_json::json;

use crate::call::ToolName;
use crate::manifest::DeclaredSource;
use crate::tools::{DiscoveredTool, Listed, ToolDefinitionSnapshot};

/// The tools of one listing, with what is odd about it.
#[derive(Default)]
pub(super) struct Listing {
    pub(super) offers: Vec<DiscoveredTool>,
    /// Oddities of the listing that do not depend on the manifest.
    pub(super) warnings: Vec<String>,
    /// Names of tools that cannot be used, without the prefix.
    pub(super) left_out: Vec<String>,
}

impl Listing {
    /// Leaves out the tools of a foreign source whose names are invalid, because the operator cannot rename them. Tools
    /// of other sources are all kept, so that their author sees the error at once.
    pub(super) fn of(declared: &DeclaredSource, listed: Listed) -> Self {
        let Listed { tools, warnings, left_out } = listed;
        let mut listing = Self { offers: Vec::new(), warnings, left_out };
        let prefix = &declared.rules.prefix;
        for offer in tools {
            match ToolName::parse(&format!("{prefix}{}", offer.name)) {
                Err(error) if declared.settings.is_foreign() => {
                    let shown: String =
                        offer.name.chars().filter(|c| !c.is_control()).take(ToolName::MAX_LEN).collect();
                    listing.warnings.push(format!(
                        "the tool `{shown}` is left out: {error}, `{prefix}` included; its server would have to name it \
                         otherwise, and `exclude` spares this warning"
                    ));
                    listing.left_out.push(offer.name);
                }
                Ok(_) | Err(_) => listing.offers.push(offer),
            }
        }
        listing
    }

    /// Whether another listing has the same tools and warnings. Their runners may differ.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        let same = self.offers.len() == other.offers.len() && self.warnings == other.warnings;
        same && self
            .offers
            .iter()
            .zip(&other.offers)
            .all(|(one, other)| is_the_same(one, other) && is_in_the_same_order(one, other))
    }

    /// Takes over the runners of unchanged tools from an earlier listing of the same source. Equal runners let the
    /// tools keep their stacks.
    pub(super) fn keep_runners(&mut self, before: &Self) {
        for offer in &mut self.offers {
            if let Some(same) = before.offers.iter().find(|before| is_the_same(before, offer)) {
                offer.runner = same.runner.clone();
                offer.said.clone_from(&same.said);
            }
        }
    }
}

/// JSON objects are equal regardless of order, but a model reads the members in their order.
fn is_in_the_same_order(one: &DiscoveredTool, other: &DiscoveredTool) -> bool {
    let text = |offer: &DiscoveredTool| json!([offer.input_schema, offer.output_schema, offer.annotations]).to_string();
    text(one) == text(other)
}

fn is_the_same(one: &DiscoveredTool, other: &DiscoveredTool) -> bool {
    let DiscoveredTool {
        name,
        description,
        input_schema,
        output_schema,
        annotations,
        result_as_answer,
        max_calls,
        env,
        runner: _,
        said,
    } = one;
    let prints = |said: &Option<ToolDefinitionSnapshot>| said.as_ref().map(|said| said.prints.clone());
    (name, description, input_schema) == (&other.name, &other.description, &other.input_schema)
        && (output_schema, annotations) == (&other.output_schema, &other.annotations)
        && (result_as_answer, max_calls, env) == (&other.result_as_answer, &other.max_calls, &other.env)
        // The fingerprint covers the definition before secrets are removed. A change of a removed part is found only
        // here.
        && prints(said) == prints(&other.said)
}
