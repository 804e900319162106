//! Names agents in the descriptions of the tools that hand work to agents, and functions in those of the
//! tools that run scripts.

use super::agent::coworkers::{format_agent_list, has_task_parameter};
use crate::call::{Definition, Kind};
use crate::kinds::Tool;

/// The agents of a service, and the tools that hand work to agents, with their original
/// descriptions.
#[derive(Clone, Default)]
pub(crate) struct AgentDirectory {
    agents: Vec<Definition>,
    delegating_tools: Vec<Tool>,
}

impl AgentDirectory {
    /// Collects both from all tools of the program and the manifest.
    pub(crate) fn from_tools(tools: &[Tool]) -> Self {
        let agents = tools
            .iter()
            .filter(|tool| is_agent(tool))
            .map(|tool| tool.definition.clone());
        let delegates = tools
            .iter()
            .filter(|tool| tool.runner.traits().calls_tools)
            .cloned();
        Self {
            agents: agents.collect(),
            delegating_tools: delegates.collect(),
        }
    }

    /// Adds the available agents, with their purposes, to the descriptions of the tools that hand
    /// work to agents. The description is the same for all callers. So it omits an agent that some
    /// callers of the tool may not use (`covers`).
    pub(crate) fn append_agent_lists(
        &self,
        tools: &mut [Tool],
        covers: impl Fn(&Definition, &Definition) -> bool,
    ) {
        for tool in tools {
            let known: Vec<&Definition> = self
                .agents
                .iter()
                .filter(|agent| {
                    has_task_parameter(agent)
                        && tool.runner.delegates_to(agent)
                        && covers(agent, &tool.definition)
                })
                .collect();
            if !known.is_empty() {
                tool.definition
                    .description
                    .push_str(&format_agent_list(known));
            }
        }
    }

    /// Adds a tool. Returns it with its full description, and every other tool whose description
    /// now names it.
    pub(crate) fn add_tool(
        &mut self,
        tool: &Tool,
        covers: impl Fn(&Definition, &Definition) -> bool,
    ) -> (Tool, Vec<Tool>) {
        let mut others = Vec::new();
        if is_agent(tool) {
            self.agents.push(tool.definition.clone());
            let delegates_to_agent =
                |delegate: &&Tool| delegate.runner.delegates_to(&tool.definition);
            others.extend(
                self.delegating_tools
                    .iter()
                    .filter(delegates_to_agent)
                    .cloned(),
            );
        }
        if tool.runner.traits().calls_tools {
            self.delegating_tools.push(tool.clone());
        }
        let mut described = [tool.clone()];
        self.append_agent_lists(&mut described, &covers);
        self.append_agent_lists(&mut others, &covers);
        let [described] = described;
        (described, others)
    }
}

/// Adds the functions that scripts may call to the descriptions of the tools that run scripts. As with agents,
/// these are the tools that all callers of such a tool may use.
pub(crate) fn append_functions<'a>(
    tools: &mut [Tool],
    further: impl Iterator<Item = &'a Tool>,
    covers: impl Fn(&Definition, &Definition) -> bool,
) {
    let runs_scripts = |tool: &Tool| tool.runner.describe_tools(&[]).is_some();
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

fn is_agent(tool: &Tool) -> bool {
    tool.kind == Kind::Agent
}
