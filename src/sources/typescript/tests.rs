//! Tests with real workers in real processes. On a machine without Node.js they print a notice and
//! pass.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::call::{
    Caller, Effect, Invocation, JsonObject, ToolContext, ToolError, ToolName, ToolResult,
    ToolSettings,
};
use crate::environment::Environment;
use crate::kinds::ProcessEnv;
use crate::secrets::Redactor;
use crate::sources::workers::testing::settings_for_tests;
use crate::sources::workers::{Language, Module, ModuleSettings, WorkerRange};
use crate::sources::{Source, SourceListing};

const TIMEOUT: Duration = Duration::from_secs(30);

const SOURCE: &str = "
/** Says which process it is. */
export function pid() { return process.pid; }
/** Waits. @param {number} ms Milliseconds */
export async function nap(ms) { await new Promise((done) => setTimeout(done, ms)); return process.pid; }
/** Never returns. */
export function spin() { for (;;); }
/** Ends the worker. */
export function leave() { process.exit(3); }
";

fn is_node_missing() -> bool {
    let node = std::process::Command::new("node").arg("--version").output();
    let is_missing = !node.is_ok_and(|output| output.status.success());
    if is_missing {
        println!("skipped: there is no node");
    }
    is_missing
}

fn test_env() -> ProcessEnv {
    ProcessEnv::new(Arc::new(Redactor::new([])), &Environment::from_process())
}

/// A folder with a module.
struct Fixture {
    folder: TempDir,
    module: Module,
}

impl Fixture {
    fn new(source: &str, change: impl FnOnce(&mut ModuleSettings, &Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shop.mjs");
        std::fs::write(&file, source).unwrap();
        let mut settings = ModuleSettings {
            program: "node".into(),
            ..settings_for_tests(Language::Typescript, &file)
        };
        change(&mut settings, folder.path());
        let module = Module::new(settings, TypescriptRuntime, &test_env());
        Self { folder, module }
    }

    async fn list(&self) -> Result<SourceListing, String> {
        self.module.list(&|_| {}).await.map_err(|fault| fault.0)
    }

    async fn wait_for_change(&self) {
        let changed = tokio::time::timeout(TIMEOUT, self.module.changed());
        changed.await.expect("the change is noticed");
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }
}

/// A call, which starts when it is polled.
fn call(
    listing: &SourceListing,
    name: &str,
    arguments: Value,
    effect: Effect,
) -> impl Future<Output = Result<ToolResult, ToolError>> + Send + use<> {
    let tool = listing.tools.iter().find(|tool| tool.name == name).unwrap();
    let (runner, caller) = (tool.runner.clone(), Arc::new(Caller::anonymous()));
    let name = ToolName::parse(name).unwrap();
    let invocation = Invocation::new(name, JsonObject::new(), caller, jiff::Timestamp::now());
    let settings = ToolSettings {
        effect,
        ..ToolSettings::default()
    };
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    let context = ToolContext::new(&invocation, deadline, Arc::new(settings));
    let Value::Object(arguments) = arguments else {
        panic!("{arguments}")
    };
    async move { runner.call(Arc::new(arguments), context).await }
}

async fn text(listing: &SourceListing, name: &str, arguments: Value) -> String {
    let result = call(listing, name, arguments, Effect::Read).await.unwrap();
    assert!(!result.is_error, "{result:?}");
    result.as_text()
}

#[tokio::test]
async fn calls_are_spread_over_workers() {
    if is_node_missing() {
        return;
    }
    let fixture = Fixture::new(SOURCE, |settings, _| {
        settings.workers = WorkerRange::exactly(2);
    });
    let listing = fixture.list().await.unwrap();
    let end = Instant::now() + TIMEOUT;
    while fixture.module.status().workers < 2 {
        assert!(Instant::now() < end, "{:?}", fixture.module.status());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let naps = (0..8).map(|_| text(&listing, "nap", json!({"ms": 100})));
    let pids = futures_util::future::join_all(naps).await;
    let of_first = pids.iter().filter(|pid| **pid == pids[0]).count();
    assert_eq!(of_first, 4, "{pids:?}");
}

#[tokio::test]
async fn spinning_call_ends_its_worker_alone() {
    if is_node_missing() {
        return;
    }
    let fixture = Fixture::new(SOURCE, |_, _| {});
    let listing = fixture.list().await.unwrap();
    let before = text(&listing, "pid", json!({})).await;
    let spin = call(&listing, "spin", json!({}), Effect::Read);
    let nap = call(&listing, "nap", json!({"ms": 1}), Effect::Read);
    let spin = tokio::time::timeout(Duration::from_millis(100), spin);
    let (spun, napped) = tokio::join!(spin, nap);
    assert!(spun.is_err(), "it never ends");
    let after = napped.unwrap().as_text();
    assert_ne!(before, after, "a call that only reads is repeated");
    assert_eq!(fixture.module.status().replaced, 1);
}

#[tokio::test]
async fn exit_of_a_worker_fails_its_call() {
    if is_node_missing() {
        return;
    }
    let fixture = Fixture::new(SOURCE, |_, _| {});
    let listing = fixture.list().await.unwrap();
    let before = text(&listing, "pid", json!({})).await;
    match call(&listing, "leave", json!({}), Effect::Write).await {
        Err(ToolError::Unavailable { message, .. }) => assert_eq!(
            message,
            "the function did not end: its worker process ended with exit status 3"
        ),
        other => panic!("{other:?}"),
    }
    assert_ne!(text(&listing, "pid", json!({})).await, before);
}

#[tokio::test]
async fn include_and_exclude_select_tools() {
    if is_node_missing() {
        return;
    }
    let fixture = Fixture::new(SOURCE, |settings, _| {
        settings.include = vec!["*p*".into(), "gone".into()];
        settings.exclude = vec!["spin".into()];
    });
    let listing = fixture.list().await.unwrap();
    let names: Vec<&str> = listing.tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["nap", "pid"]);
    assert_eq!(
        listing.warnings,
        ["`include`: no tool of the module has the name `gone`"]
    );
}

#[tokio::test]
async fn changed_import_is_loaded_again() {
    if is_node_missing() {
        return;
    }
    let source = "import { ANSWER } from './answer.mjs';\n/** Answers. */\nexport function answer() { return ANSWER; }\n";
    let fixture = Fixture::new(source, |_, folder| {
        std::fs::write(folder.join("answer.mjs"), "export const ANSWER = 1;\n").unwrap();
    });
    let first = fixture.list().await.unwrap();
    assert_eq!(text(&first, "answer", json!({})).await, "1");
    fixture.write("answer.mjs", "export const ANSWER = 22;\n");
    fixture.wait_for_change().await;
    let second = fixture.list().await.unwrap();
    assert_eq!(text(&second, "answer", json!({})).await, "22");
    assert_eq!(
        text(&first, "answer", json!({})).await,
        "22",
        "a tool that is equal keeps its runner"
    );
    fixture.write("answer.mjs", "export const ANSWER = ;\n");
    fixture.wait_for_change().await;
    let fault = fixture.list().await.err().unwrap();
    assert!(fault.contains("answer.mjs:1"), "{fault}");
    assert!(fixture.module.status().is_up, "the old version stays");
}

#[tokio::test]
async fn packages_are_installed_once() {
    let has_npm = std::process::Command::new("npm").arg("--version").output();
    if is_node_missing() || has_npm.is_err() {
        return;
    }
    let fixture = Fixture::new(SOURCE, |settings, folder| {
        settings.requirements = Some(folder.join("package.json"));
    });
    fixture.write(
        "package.json",
        r#"{"dependencies": {"near": "file:../near"}}"#,
    );
    let fault = fixture.list().await.err().unwrap();
    assert!(fault.contains("the package near in "), "{fault}");
    fixture.write("package.json", "[]");
    let fault = fixture.list().await.err().unwrap();
    assert!(fault.contains(" is not a package.json: "), "{fault}");

    fixture.write("package.json", r#"{"name": "shop", "version": "1.0.0"}"#);
    let reports = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let collector = reports.clone();
    let report = move |line: String| collector.lock().push(line);
    for _ in 0..2 {
        fixture
            .module
            .list(&report)
            .await
            .map_err(|fault| fault.0)
            .unwrap();
    }
    let built = "its package folder is built";
    let count = reports.lock().iter().filter(|line| *line == built).count();
    assert_eq!(count, 1, "{reports:?}");
}

#[tokio::test]
async fn unusable_runtimes_are_explained() {
    for (script, expected) in [
        (
            "#!/bin/sh\necho runtime:node:18.18.2:/nowhere\n",
            "is Node.js 18.18.2; 18.20, or 20.9 or newer, is needed, and 22.18 or newer runs TypeScript by itself",
        ),
        (
            "#!/bin/sh\necho runtime:node:20.8.1:/nowhere\n",
            "is Node.js 20.8.1; 18.20, or 20.9 or newer, is needed, and 22.18 or newer runs TypeScript by itself",
        ),
        (
            "#!/bin/sh\necho no file\necho\necho what?\nexit 3\n",
            "did not report a version of Node.js, Deno or Bun: it ended with exit status: 3; its last output: no file; what?",
        ),
    ] {
        let fixture = Fixture::new(SOURCE, |settings, folder| {
            settings.program = folder.join("node");
        });
        fixture.write("node", script);
        let file = fixture.folder.path().join("node");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        let fault = loop {
            match fixture.list().await {
                // A child process of another test may still hold the new file open for writing.
                Err(fault) if fault.contains("Text file busy") => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                listed => break listed.err().unwrap(),
            }
        };
        assert_eq!(fault, format!("{} {expected}", file.display()));
    }
    let fixture = Fixture::new(SOURCE, |settings, _| settings.program = "node2".into());
    assert_eq!(
        fixture.list().await.err().unwrap(),
        "there is no runtime `node2` in the service's PATH"
    );
}
