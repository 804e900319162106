//! Lists sources once, for commands that show tools without serving them.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::join_all;

use super::active_listing::ActiveListing;
use super::entry::snapshot_files;
use crate::catalog::registry::conflict_advice;
use crate::kinds::{ProcessEnv, Tool};
use crate::manifest::{DeclaredSource, ListedFinding};
use crate::schema::Schema;

/// The tools and the failures of such a listing.
#[derive(Default)]
pub(crate) struct LoadOutcome {
    /// The tools, in the order of their sources.
    pub(crate) tools: Vec<Tool>,
    /// One sentence for each source, or tool of a foreign source, that cannot be used.
    pub(crate) faults: Vec<String>,
    /// What misleads models in the definitions of the tools, for each source with such findings.
    pub(crate) findings: Vec<SourceFindings>,
    /// One sentence for each warning about a source that can be used, and for each quarantined
    /// tool.
    pub(crate) warnings: Vec<String>,
}

/// The findings about the tools of one source.
pub(crate) struct SourceFindings {
    /// Name of the source.
    pub(crate) source: String,
    /// The warnings, then the hints, at most a hundred.
    pub(crate) shown: Vec<ListedFinding>,
    /// The number of all warnings.
    pub(crate) warnings: usize,
}

/// Starts these sources side by side and lists their tools. Calls `on_progress` with the name and
/// the activity of a source. `taken` are the tools that exist without sources.
pub(crate) async fn list_once(
    sources: Vec<DeclaredSource>,
    taken: &[Tool],
    process_env: &ProcessEnv,
    on_progress: fn(&str, &str),
) -> LoadOutcome {
    let snapshots = snapshot_files(sources).await.unwrap_or_default();
    let listed = join_all(snapshots.iter().map(|(declared, files)| async move {
        let source = declared.settings.build(process_env);
        let name = Arc::<str>::from(declared.name());
        let listed = source
            .list(&move |what: String| on_progress(&name, &what))
            .await
            .map_err(|fault| fault.to_string())?;
        let listing = Arc::new(listed.without_invalid_names(declared));
        ActiveListing::new(declared, files, source, listing, &[]).map_err(|fault| fault.why)
    }))
    .await;
    let mut names: HashSet<String> = taken.iter().flat_map(all_names).collect();
    let mut outcome = LoadOutcome::default();
    for ((declared, _), listed) in snapshots.iter().zip(listed) {
        let (source, may_lose_tools) = (declared.name(), declared.settings.may_lose_tools());
        let accepted = listed.and_then(|listing| {
            let quarantined = listing.quarantined.iter();
            let quarantined =
                quarantined.map(|one| format!("`{}` is quarantined: {}", one.tool, one.reason));
            let warnings = listing.warnings.into_iter().chain(quarantined);
            let warnings = warnings.map(|text| format!("source `{source}`: warning: {text}"));
            outcome.warnings.extend(warnings);
            if !listing.findings.shown.is_empty() {
                outcome.findings.push(SourceFindings {
                    source: source.to_owned(),
                    shown: listing.findings.shown,
                    warnings: listing.findings.warnings,
                });
            }
            let mut accepted = Vec::new();
            for tool in listing.tools {
                match check_fit(&tool, &names) {
                    Ok(()) => accepted.push(tool),
                    Err(why) if may_lose_tools => {
                        outcome.faults.push(format!("source `{source}`: {why}"));
                    }
                    Err(why) => return Err(why),
                }
            }
            Ok(accepted)
        });
        match accepted {
            Ok(mut accepted) => {
                names.extend(accepted.iter().flat_map(all_names));
                outcome.tools.append(&mut accepted);
            }
            Err(why) => {
                outcome
                    .faults
                    .push(format!("source `{source}` failed: {why}"));
            }
        }
    }
    outcome
}

fn all_names(tool: &Tool) -> Vec<String> {
    let aliases = tool.definition.aliases.iter().map(ToString::to_string);
    std::iter::once(tool.name().to_owned())
        .chain(aliases)
        .collect()
}

fn check_fit(tool: &Tool, taken: &HashSet<String>) -> Result<(), String> {
    let own = tool.name();
    if let Some(name) = all_names(tool).iter().find(|name| taken.contains(*name)) {
        return Err(format!(
            "its tool `{own}`: the name `{name}` is already in use; {}",
            conflict_advice(tool.kind)
        ));
    }
    let input =
        Schema::compile_input(tool.definition.input_schema.clone(), tool.schema_owner).map(drop);
    input.map_err(|fault| format!("its tool `{own}`: input_schema: {fault}"))?;
    if let Some(output) = &tool.definition.output_schema {
        Schema::compile_output(output.clone(), tool.schema_owner)
            .map_err(|fault| format!("its tool `{own}`: output_schema: {fault}"))?;
    }
    Ok(())
}
