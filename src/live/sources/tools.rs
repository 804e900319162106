//! From what a source offers and what the manifest says of it to tools.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::board::Board;
use crate::call::json::digest;
use crate::call::{Effect, Idempotency, NameError, Policy, RetryPolicy, ToolName};
use crate::live::seen::Seen;
use crate::manifest::DeclaredSource;
use crate::similar;
use crate::tools::{Offer, StandIn, Tool};

/// The tools of a listing and what is odd about them, or the one reason why nothing of it can be served. A key that
/// names no tool is such a reason: a limit that silently governs nothing would be worse than no tool.
pub(super) fn offered(
    declared: &DeclaredSource,
    offers: &[Offer],
    files: &Seen,
) -> Result<(Vec<Tool>, Vec<String>), String> {
    let own: Vec<&str> = offers.iter().map(|offer| offer.name.as_str()).collect();
    if let Some(key) = declared.rules.tools.keys().find(|key| !own.contains(&key.as_str())) {
        let prefix = &declared.rules.prefix;
        let there = match similar::closest(key, own.iter().copied(), similar::HINT) {
            Some(near) => format!("did you mean `{near}`?"),
            None if key.strip_prefix(prefix.as_str()).is_some_and(|bare| own.contains(&bare)) => {
                "keys are the source's own names, without the prefix".into()
            }
            None if own.is_empty() => "it has no tools".into(),
            None => format!("there are {}", own.join(", ")),
        };
        return Err(format!("tools.{key}: the source has no such tool; {there}"));
    }
    let mut seen = HashSet::new();
    if let Some(twice) = own.iter().find(|name| !seen.insert(**name)) {
        return Err(format!("it has two tools called `{twice}`"));
    }
    let (mut tools, mut warnings) = (Vec::new(), Vec::new());
    for offer in offers {
        let (tool, warning) = one(declared, offer, files)?;
        tools.push(tool);
        warnings.extend(warning);
    }
    Ok((tools, warnings))
}

fn one(declared: &DeclaredSource, offer: &Offer, files: &Seen) -> Result<(Tool, Option<String>), String> {
    let rules = &declared.rules;
    let name = format!("{}{}", rules.prefix, offer.name);
    let shown: String = name.chars().filter(|c| !c.is_control()).take(ToolName::MAX_LEN).collect();
    ToolName::parse(&name).map_err(|error: NameError| format!("its tool `{shown}`: {error}"))?;
    let said = rules.tools.get(&offer.name);
    let description = said.and_then(|said| said.description.clone()).unwrap_or_else(|| offer.description.clone());
    let mut tool = Tool::new(name, description).with_runner(offer.runner.clone());
    tool.definition.input_schema = Arc::new(offer.input_schema.clone());
    tool.definition.output_schema = offer.output_schema.clone().map(Arc::new);
    tool.definition.annotations = offer.annotations.clone();
    tool.definition.result_as_answer = offer.result_as_answer;
    if let Some(said) = said {
        tool.definition.annotations.extend(said.annotations.clone());
        tool.definition.result_as_answer = said.result_as_answer.unwrap_or(offer.result_as_answer);
        tool.definition.tags.clone_from(&said.tags);
        tool.definition.aliases.clone_from(&said.aliases);
    }
    tool.policy = said.map_or(&rules.policy, |said| &said.policy).clone();
    origin(&mut tool, declared, &offer.name, files);
    let policy = &tool.policy;
    let is_kept = policy.effect == Effect::Read && policy.cache.as_ref().is_some_and(|cache| cache.context.is_none());
    let warning = (said.is_some() && is_kept && offer.runner.takes_context()).then(|| {
        let name = tool.name();
        format!(
            "tool `{name}`: cache has no effect: the tool is handed the caller's context; write cache.context with the \
             fields that its results depend on, [] if none"
        )
    });
    Ok((tool, warning))
}

/// Where a tool is from and what makes it another: what is written of its source, and the files that it is read from.
fn origin(tool: &mut Tool, declared: &DeclaredSource, own: &str, files: &Seen) {
    (tool.kind, tool.origin) = (declared.settings.kind(), declared.settings.origin());
    let contents: Vec<Value> = files.contents().map(|content| content.map(hex::encode).into()).collect();
    let implementation = json!({"source": declared.written, "tool": own, "files": contents});
    tool.settings.implementation = Some(implementation);
    tool.settings.generation = digest([declared.generation.as_slice()]);
}

/// What stands for the tools whose names are known, while there is nothing to run them.
pub(super) fn stand_ins(declared: &DeclaredSource, listed: &[String], board: &Arc<Board>) -> Vec<Tool> {
    let rules = &declared.rules;
    let more = listed.iter().map(String::as_str).filter(|name| !rules.known().any(|known| known == *name));
    let stand_in = |own: &str| {
        let why = board.clone();
        let name = format!("{}{own}", rules.prefix);
        let said = rules.tools.get(own);
        let description = said.and_then(|said| said.description.clone());
        let description = description.unwrap_or_else(|| format!("A tool of source `{}`, which is not up.", board.name));
        let mut tool = Tool::new(name, description).with_runner(Arc::new(StandIn::new(move || why.why())));
        tool.definition.input_schema = Arc::new(json!({"type": "object"}));
        if let Some(said) = said {
            tool.definition.tags.clone_from(&said.tags);
            tool.definition.aliases.clone_from(&said.aliases);
        }
        let policy = said.map_or(&rules.policy, |said| &said.policy).clone();
        // Nothing is tried, so there is nothing to repeat and nothing that a key would have to protect: a key that waits
        // for the real tool stays good for it.
        let idempotency = Idempotency::Off;
        tool.policy = Policy { retry: RetryPolicy::default(), cache: None, repeatable: true, idempotency, ..policy };
        (tool.kind, tool.origin) = (declared.settings.kind(), declared.settings.origin());
        tool
    };
    rules.known().chain(more).map(stand_in).collect()
}
