//! The functions in the descriptions of the tools that run scripts.

use crate::call::Definition;
use crate::kinds::Tool;

/// Adds the functions that scripts may call to the descriptions of the tools that run scripts. As with agents,
/// these are the tools that all callers of such a tool may use.
pub(crate) fn append_functions<'a>(
    tools: &mut [Tool],
    further: impl Iterator<Item = &'a Tool>,
    covers: impl Fn(&Definition, &Definition) -> bool,
) {
    let runs_scripts = |tool: &Tool| tool.runner.traits().runs_scripts;
    if !tools.iter().any(runs_scripts) {
        return;
    }
    let usable = |tool: &Tool| {
        let is_function = !tool.runner.traits().finds_tools && !runs_scripts(tool);
        (tool.policy.enabled && is_function).then(|| tool.definition.clone())
    };
    let mut all: Vec<Definition> = tools.iter().filter_map(usable).collect();
    all.extend(further.filter_map(usable));
    all.sort_by(|one, other| one.name.cmp(&other.name));
    for tool in tools.iter_mut().filter(|tool| runs_scripts(tool)) {
        let own = &tool.definition;
        let usable = all
            .iter()
            .filter(|one| one.name != own.name && covers(one, own));
        let list = tool.runner.describe_tools(&usable.collect::<Vec<_>>());
        tool.definition.description.extend(list);
    }
}
