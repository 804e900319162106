//! The operator's switches on a running service: `cancel`, `enable`, `disable` and `purge`.

use reqwest::Method;
use serde_json::Value;

use super::Failure;
use super::client::{Client, ServerArgs, encode_segment, print_answer, successful};
use super::invocations::SHORT_ID;
use super::output::{OutputArgs, print_line};
use crate::call::InvocationId;
use crate::call::units::Count;
use crate::environment::Environment;

/// Most calls of a page of `GET /invocations`.
const MAX_LISTED: u32 = 500;

/// Arguments of `cancel`.
#[derive(clap::Args)]
pub(super) struct CancelArgs {
    /// The id of a running call, or its end as `toolcrib invocations` shows it.
    id: String,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `enable` and `disable`.
#[derive(clap::Args)]
pub(super) struct SwitchArgs {
    /// The tool.
    name: String,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `purge`.
#[derive(clap::Args)]
pub(super) struct PurgeArgs {
    /// The tool. Without it, the results of all tools are purged.
    name: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Cancels a running call.
pub(super) async fn cancel(args: CancelArgs, environment: &Environment) -> Result<(), Failure> {
    let client = args.server.client_or_local(environment)?;
    let running = CallList {
        paths: &["/invocations?state=running", "/invocations?state=reserved"],
        key: "invocations",
        what: "running call",
        command: "toolcrib invocations --state running",
    };
    let id = running.find(&client, &args.id, &args.output).await?;
    let answer = client
        .send(
            Method::DELETE,
            &format!("/invocations/{}", encode_segment(&id)),
        )
        .await?;
    print(answer, &args.output, |answer| {
        let text = |key: &str| answer[key].as_str().unwrap_or_default();
        match text("kind") {
            "cancelled" => format!("{}: cancelled ({})", text("tool"), text("invocation_id")),
            _ => {
                format!(
                    "{}: still {}, and will be cancelled ({})",
                    text("tool"),
                    text("state"),
                    text("invocation_id")
                )
            }
        }
    })
}

/// Lists in which a command looks for a call.
pub(super) struct CallList {
    pub(super) paths: &'static [&'static str],
    /// The key of the calls in the answers.
    pub(super) key: &'static str,
    /// What the calls are, for messages.
    pub(super) what: &'static str,
    /// The command that shows them.
    pub(super) command: &'static str,
}

impl CallList {
    /// The id of a call, which is given in full or by its end.
    pub(super) async fn find(
        &self,
        client: &Client,
        end: &str,
        output: &OutputArgs,
    ) -> Result<String, Failure> {
        if let Ok(id) = end.parse::<InvocationId>() {
            return Ok(id.to_string());
        }
        // A shorter end, or an empty one, may be that of a call which the user does not mean.
        if end.len() < SHORT_ID {
            return Err(Failure::Usage(format!(
                "`{end}` is too short: give the whole id, or its last {SHORT_ID} characters"
            )));
        }
        let mut found = Vec::new();
        for path in self.paths {
            let answer = client.get(&format!("{path}&limit={MAX_LISTED}")).await?;
            let answer = successful(answer, output.is_for_people())?;
            let ids = answer[self.key].as_array().into_iter().flatten();
            let ids = ids
                .filter_map(|row| row["invocation_id"].as_str())
                .filter(|id| id.ends_with(end));
            found.extend(ids.map(str::to_owned));
        }
        found.dedup();
        let Self { what, command, .. } = self;
        match found.len() {
            1 => Ok(found.remove(0)),
            0 => Err(Failure::Failed(format!(
                "toolcrib: no {what} has an id that ends with `{end}`; {command} lists them"
            ))),
            many => Err(Failure::Failed(format!(
                "toolcrib: {many} {what}s have ids that end with `{end}`: {}",
                found.join(", ")
            ))),
        }
    }
}

/// Enables or disables a tool.
pub(super) async fn switch(
    args: SwitchArgs,
    is_enabled: bool,
    environment: &Environment,
) -> Result<(), Failure> {
    let client = args.server.client_or_local(environment)?;
    let verb = if is_enabled { "enable" } else { "disable" };
    let answer = client
        .send(
            Method::POST,
            &format!("/tools/{}/{verb}", encode_segment(&args.name)),
        )
        .await?;
    print(answer, &args.output, |answer| {
        let state = if answer["enabled"] == true {
            "enabled"
        } else {
            "disabled"
        };
        format!("{}: {state}", answer["tool"].as_str().unwrap_or_default())
    })
}

/// Purges stored results.
pub(super) async fn purge(args: PurgeArgs, environment: &Environment) -> Result<(), Failure> {
    let client = args.server.client_or_local(environment)?;
    let path = match &args.name {
        Some(name) => format!("/tools/{}/cache", encode_segment(name)),
        None => "/cache".to_owned(),
    };
    let answer = client.send(Method::DELETE, &path).await?;
    print(answer, &args.output, |answer| {
        let purged = Count(
            answer["purged"].as_u64().unwrap_or_default(),
            "stored result",
        );
        let pending = match answer["pending"].as_bool() {
            Some(true) => "; pending in Redis, which does not answer",
            _ => "",
        };
        format!(
            "{}: {purged} purged{pending}",
            answer["tool"].as_str().unwrap_or("all tools")
        )
    })
}

/// Prints the answer: a sentence for people, JSON for programs.
fn print(
    answer: (reqwest::StatusCode, Value),
    output: &OutputArgs,
    describe: impl FnOnce(&Value) -> String,
) -> Result<(), Failure> {
    print_answer(answer, output.is_for_people(), |answer| {
        print_line(&describe(answer));
    })
}
