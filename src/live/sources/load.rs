//! Lists sources once, for commands that show tools without serving them.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::join_all;

use super::{ActiveListing, Listing, change};
use crate::manifest::DeclaredSource;
use crate::registry::way_out;
use crate::schema::Schema;
use crate::tools::{ProcessEnv, Tool};

/// The tools and the failures of such a listing.
pub(crate) struct LoadOutcome {
    /// The tools, in the order of their sources.
    pub(crate) tools: Vec<Tool>,
    /// One sentence for each source, or tool of a foreign source, that cannot be used.
    pub(crate) faults: Vec<String>,
}

/// Starts these sources side by side and lists their tools. Calls `told` with the name and the activity of a source.
/// `taken` are the tools that exist without sources.
pub(crate) async fn once(
    sources: Vec<DeclaredSource>,
    taken: &[Tool],
    surroundings: &ProcessEnv,
    told: fn(&str, &str),
) -> LoadOutcome {
    let looked = change::look(sources).await.unwrap_or_default();
    let listed = join_all(looked.iter().map(|(declared, files)| async move {
        let source = declared.settings.build(surroundings);
        let name = Arc::<str>::from(declared.name());
        let listed = source.list(&move |what: String| told(&name, &what)).await.map_err(|fault| fault.to_string())?;
        let listing = Arc::new(Listing::of(declared, listed));
        let serving = ActiveListing::new(declared, files, source, listing, &[]);
        serving.map(|serving| serving.tools).map_err(|fault| fault.why)
    }))
    .await;
    let mut names: HashSet<String> = taken.iter().flat_map(names_of).collect();
    let mut brought = LoadOutcome { tools: Vec::new(), faults: Vec::new() };
    for ((declared, _), listed) in looked.iter().zip(listed) {
        let mut fitted = Vec::new();
        let fits = listed.and_then(|tools| {
            for tool in tools {
                match fit(&tool, &names) {
                    Ok(()) => fitted.push(tool),
                    Err(why) if declared.settings.is_foreign() => {
                        brought.faults.push(format!("source `{}`: {why}", declared.name()));
                    }
                    Err(why) => return Err(why),
                }
            }
            Ok(())
        });
        match fits {
            Ok(()) => {
                names.extend(fitted.iter().flat_map(names_of));
                brought.tools.append(&mut fitted);
            }
            Err(why) => brought.faults.push(format!("source `{}` failed: {why}", declared.name())),
        }
    }
    brought
}

fn names_of(tool: &Tool) -> Vec<String> {
    let aliases = tool.definition.aliases.iter().map(ToString::to_string);
    std::iter::once(tool.name().to_owned()).chain(aliases).collect()
}

fn fit(tool: &Tool, taken: &HashSet<String>) -> Result<(), String> {
    let own = tool.name();
    if let Some(name) = names_of(tool).iter().find(|name| taken.contains(*name)) {
        return Err(format!("its tool `{own}`: `{name}` is there already; {}", way_out(tool.kind)));
    }
    let input = Schema::compile_input(tool.definition.input_schema.clone()).map(drop);
    input.map_err(|fault| format!("its tool `{own}`: input_schema: {fault}"))?;
    if let Some(output) = &tool.definition.output_schema {
        Schema::compile(output.clone()).map_err(|fault| format!("its tool `{own}`: output_schema: {fault}"))?;
    }
    Ok(())
}
