//! The tool: starts a script with its bounds, and lists the functions in its description.

use std::future::ready;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::OnceCell;

use super::config::Config;
use super::protocol::Start;
use super::session::Session;
use super::signatures;
use crate::access::tool_pattern::{ToolPattern, any_grants};
use crate::call::units::{HumanDuration, Size};
use crate::call::{Definition, JsonObject, ToolContext, ToolError};
use crate::kinds::builtin::arguments::text_argument;
use crate::kinds::builtin::find_tools::tool_invoker;
use crate::kinds::process::OrphanReaper;
use crate::kinds::sandbox::{EntrySandbox, OwnPaths, SandboxMap, SandboxSetting, Sandboxes};
use crate::kinds::{Runner, RunnerTraits, ToolOutcome};

/// The program that runs scripts: this one, if it is `toolcrib`. Another program that embeds the library
/// shares the path of a `toolcrib`.
#[derive(Debug, Clone)]
pub struct ScriptProgram(pub PathBuf);

/// What the process may use beside the memory of the script: the program itself, and the stacks of its threads.
const OWN_MEMORY: u64 = 192 << 20;
/// The system ends the process after twice the time of the script and this: each call of the script costs time, too.
const TIME_SLACK: Duration = Duration::from_secs(2);
/// Ends the description if the list of functions is too long for it.
const MANY_TOOLS: &str = " There are too many functions to list: in a first script, write search_tools('a few words'), which returns \
     signatures.";

pub(super) struct RunScript {
    config: Config,
    tools: Option<Vec<ToolPattern>>,
    /// Made at the first call, which knows the service.
    sandbox: OnceCell<EntrySandbox>,
    orphan_reaper: OrphanReaper,
}

impl RunScript {
    pub(super) fn new(config: Config) -> Self {
        Self {
            tools: config.tools.as_deref().map(ToolPattern::parse_list),
            config,
            sandbox: OnceCell::new(),
            orphan_reaper: OrphanReaper::default(),
        }
    }

    fn make_sandbox(&self, program: &ScriptProgram, shared: Sandboxes) -> EntrySandbox {
        let Config { time, memory, .. } = &self.config;
        let map = SandboxMap {
            memory: Some(Size(memory.0 + OWN_MEMORY)),
            cpu: Some(HumanDuration(time.0 * 2 + TIME_SLACK)),
            files: Some(64),
            // Bubblewrap writes small files of the system, such as `ld.so.cache`, under this limit.
            disk: Some(Size(4 << 20)),
            ..SandboxMap::default()
        };
        let own = OwnPaths {
            entry: "run_script".into(),
            workdir: "/proc".into(),
            needed: vec![program.0.clone()],
            written: Vec::new(),
        };
        EntrySandbox::new(SandboxSetting::Only(Box::new(map)), own, shared)
    }
}

#[async_trait]
impl Runner for RunScript {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> ToolOutcome {
        let Some(program) = context.service::<ScriptProgram>() else {
            let message = "scripts need the program toolcrib, and this is another program";
            return Err(ToolError::unavailable_before_start(message, None));
        };
        let invoker = tool_invoker(&context)?;
        let sandboxes = context.service::<Sandboxes>().cloned().unwrap_or_default();
        let sandbox = self
            .sandbox
            .get_or_init(|| ready(self.make_sandbox(program, sandboxes)))
            .await;
        let launch = sandbox
            .launch()
            .map_err(|reason| ToolError::upstream_permanent(reason).not_delivered())?;
        let Config {
            calls,
            time,
            memory,
            output,
            ..
        } = &self.config;
        let start = Start {
            code: text_argument(&arguments, "code").to_owned(),
            calls: *calls,
            time: u64::try_from(time.0.as_millis()).unwrap_or(u64::MAX),
            memory: memory.0,
            output: usize::try_from(output.0).unwrap_or(usize::MAX),
        };
        let session = Session::new(&context, &*invoker, self.tools.as_deref());
        session
            .run(&program.0, &start, launch, &self.orphan_reaper)
            .await
    }

    fn describe_tools(&self, tools: &[&Definition]) -> Option<String> {
        let usable = tools.iter().filter(|tool| {
            let patterns = self.tools.as_deref();
            patterns.is_none_or(|patterns| any_grants(patterns, tool.names(), |_| false))
        });
        let mut list = String::from(" The functions:");
        for tool in usable {
            list.push('\n');
            list.push_str(&signatures::signature(tool));
            if list.len() > self.config.signatures {
                return Some(MANY_TOOLS.into());
            }
        }
        Some(list)
    }

    fn traits(&self) -> RunnerTraits {
        RunnerTraits {
            has_one_target: false,
            calls_tools: true,
            runs_scripts: true,
            may_ask: true,
            ..RunnerTraits::with_context(true)
        }
    }

    fn sandbox(&self) -> Option<&EntrySandbox> {
        self.sandbox.get()
    }
}
