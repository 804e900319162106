//! Names agents in the descriptions of the tools that hand work to agents.

use super::agent::coworkers::{listed, takes_task};
use crate::call::{Definition, Kind};
use crate::tools::Tool;

/// The agents of a service, and the tools that hand work to agents, with their original descriptions.
#[derive(Clone, Default)]
pub(crate) struct Introductions {
    agents: Vec<Definition>,
    delegates: Vec<Tool>,
}

impl Introductions {
    /// Collects both from all tools of the program and the manifest.
    pub(crate) fn of(tools: &[Tool]) -> Self {
        let agents = tools.iter().filter(|tool| is_agent(tool)).map(|tool| tool.definition.clone());
        let delegates = tools.iter().filter(|tool| tool.runner.calls_tools()).cloned();
        Self { agents: agents.collect(), delegates: delegates.collect() }
    }

    /// Adds the available agents, with their purposes, to the descriptions of the tools that hand work to agents. The
    /// description is the same for all callers. So it omits an agent that some callers of the tool may not use
    /// (`covers`).
    pub(crate) fn introduce(&self, tools: &mut [Tool], covers: impl Fn(&Definition, &Definition) -> bool) {
        for tool in tools {
            let known: Vec<&Definition> = self
                .agents
                .iter()
                .filter(|agent| {
                    takes_task(agent) && tool.runner.hands_work_to(agent) && covers(agent, &tool.definition)
                })
                .collect();
            if !known.is_empty() {
                tool.definition.description.push_str(&listed(known));
            }
        }
    }

    /// Adds a tool. Returns it with its full description, and every other tool whose description now names it.
    pub(crate) fn add(&mut self, tool: &Tool, covers: impl Fn(&Definition, &Definition) -> bool) -> (Tool, Vec<Tool>) {
        let mut others = Vec::new();
        if is_agent(tool) {
            self.agents.push(tool.definition.clone());
            let to_it = |delegate: &&Tool| delegate.runner.hands_work_to(&tool.definition);
            others.extend(self.delegates.iter().filter(to_it).cloned());
        }
        if tool.runner.calls_tools() {
            self.delegates.push(tool.clone());
        }
        let mut described = [tool.clone()];
        self.introduce(&mut described, &covers);
        self.introduce(&mut others, &covers);
        let [described] = described;
        (described, others)
    }
}

fn is_agent(tool: &Tool) -> bool {
    tool.kind == Kind::Agent
}
