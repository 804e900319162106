//! Agents by name in the descriptions of the tools that hand work to them.

use super::agent::coworkers::{listed, takes_task};
use crate::call::{Definition, Kind};
use crate::tools::Tool;

/// The agents of a service, and the tools that hand work to agents as they were before any agent was named in them.
#[derive(Clone, Default)]
pub(crate) struct Introductions {
    agents: Vec<Definition>,
    delegates: Vec<Tool>,
}

impl Introductions {
    /// Out of all tools of program and manifest.
    pub(crate) fn of(tools: &[Tool]) -> Self {
        let agents = tools.iter().filter(|tool| is_agent(tool)).map(|tool| tool.definition.clone());
        let delegates = tools.iter().filter(|tool| tool.runner.calls_tools()).cloned();
        Self { agents: agents.collect(), delegates: delegates.collect() }
    }

    /// Says in the descriptions of tools that hand work to agents which agents there are, and what each is for. An agent that not
    /// all callers of such a tool may use (`covers`) is not named: the description is the same for all of them.
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

    /// Adds a tool. It is returned with its description, and beside it each other tool whose description now names it.
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
