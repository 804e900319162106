//! Names agents in the descriptions of the tools that hand work to agents.

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

fn is_agent(tool: &Tool) -> bool {
    tool.kind == Kind::Agent
}
