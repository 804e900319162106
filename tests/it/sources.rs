//! Sources of the program, scripted; Python modules are in `modules.rs`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use toolcrib::call::{JsonObject, ToolContext, ToolError, ToolResult};
use toolcrib::kinds::Runner;
use toolcrib::schema::SchemaOwner;
use toolcrib::sources::{
    DiscoveredTool, Source, SourceFault, SourceListing, SourceStatus, StatusFn,
};
use toolcrib::{App, Effect, Tool};

use crate::support::{TestApp, first_text, request};

/// Answers each listing by its script, in order.
#[derive(Default)]
pub(crate) struct ScriptedSource {
    script: Mutex<VecDeque<Result<Vec<DiscoveredTool>, &'static str>>>,
    /// Listings wait for it, if there is one.
    gate: Option<Arc<Semaphore>>,
    listings: AtomicUsize,
    /// What it warns of at each listing.
    warnings: Vec<String>,
    /// Reports that its tools have changed.
    changed: Notify,
    down: Arc<AtomicBool>,
}

/// Returns its text when the gate opens.
pub(crate) struct TextRunner {
    text: String,
    gate: Option<Arc<Semaphore>>,
    pub(crate) down: Arc<AtomicBool>,
    /// Counts those that are there.
    alive: Arc<()>,
}

#[async_trait::async_trait]
impl Runner for TextRunner {
    async fn call(&self, _: Arc<JsonObject>, _: ToolContext) -> Result<ToolResult, ToolError> {
        if let Some(gate) = &self.gate {
            gate.acquire().await.unwrap().forget();
        }
        if self.down.load(Ordering::SeqCst) {
            return Err(ToolError::unavailable_before_start("its worker died", None));
        }
        Ok(ToolResult::text(self.text.clone()))
    }

    fn is_available(&self) -> bool {
        !self.down.load(Ordering::SeqCst)
    }
}

#[async_trait::async_trait]
impl Source for ScriptedSource {
    async fn list(&self, told: &StatusFn) -> Result<SourceListing, SourceFault> {
        self.listings.fetch_add(1, Ordering::SeqCst);
        told("installing 12 packages".into());
        if let Some(gate) = &self.gate {
            gate.acquire().await.unwrap().forget();
        }
        let next = self.script.lock().unwrap().pop_front();
        let tools = next
            .unwrap_or(Err("there is no more"))
            .map_err(|why| SourceFault(why.into()))?;
        Ok(SourceListing {
            tools,
            warnings: self.warnings.clone(),
            skipped_names: Vec::new(),
        })
    }

    fn status(&self) -> SourceStatus {
        let down = self.down.load(Ordering::SeqCst);
        let fault = down.then(|| "its worker died".into());
        SourceStatus {
            is_up: !down,
            workers: usize::from(!down),
            replaced: u64::from(down),
            fault,
            fault_at: down.then(Instant::now),
            operations: None,
            sandbox: None,
        }
    }

    async fn changed(&self) {
        self.changed.notified().await;
    }
}

pub(crate) fn text_runner(text: &str, gate: Option<&Arc<Semaphore>>) -> Arc<TextRunner> {
    let (gate, down, alive) = (gate.cloned(), Arc::default(), Arc::default());
    Arc::new(TextRunner {
        text: text.into(),
        gate,
        down,
        alive,
    })
}

pub(crate) fn discovered_tool(name: &str, runner: Arc<dyn Runner>) -> DiscoveredTool {
    DiscoveredTool {
        name: name.into(),
        description: "Says something.".into(),
        input_schema: json!({"type": "object", "properties": {}, "additionalProperties": false}),
        output_schema: None,
        schema_owner: SchemaOwner::Own,
        effect: None,
        tags: Vec::new(),
        annotations: JsonObject::new(),
        meta: JsonObject::new(),
        result_as_answer: false,
        max_calls: None,
        env: Vec::new(),
        runner,
        snapshot: None,
    }
}

pub(crate) fn scripted_source(
    script: impl IntoIterator<Item = Result<Vec<DiscoveredTool>, &'static str>>,
) -> Arc<ScriptedSource> {
    Arc::new(ScriptedSource {
        script: Mutex::new(script.into_iter().collect()),
        ..ScriptedSource::default()
    })
}

fn plain_tool(name: &str) -> Tool {
    Tool::new(name, "…")
        .effect(Effect::Read)
        .call(|_, _| async { Ok("plain") })
}

async fn tool_names(app: &TestApp) -> Vec<String> {
    let tools = app.get("/tools").await.1["tools"].clone();
    tools
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn source(app: &TestApp, name: &str) -> Value {
    let (status, list) = app.get("/sources").await;
    assert_eq!(status, 200);
    list["sources"]
        .as_array()
        .unwrap()
        .iter()
        .find(|source| source["name"] == name)
        .unwrap()
        .clone()
}

#[tokio::test]
async fn listed_tools_are_linted() {
    let bare = |description: &str| {
        let mut tool = discovered_tool("greet", text_runner("hi", None));
        tool.description = description.into();
        tool.input_schema = json!({"type": "object", "properties": {"times": {"default": 1}}});
        Ok(vec![tool])
    };
    let source_ = scripted_source([
        bare("greet"),
        bare("Greets a person by name, in their language."),
    ]);
    let app = TestApp::loading(App::builder().source("greeter", source_.clone()), None)
        .await
        .with_sources_listed()
        .await;
    let rules = |view: &Value| -> Vec<String> {
        let findings = view["findings"].as_array().unwrap().iter();
        findings
            .map(|finding| format!("{} {}", finding["tool"], finding["rule"]).replace('"', ""))
            .collect()
    };
    let found = ["greet vague-description", "greet undescribed-parameter"];
    assert_eq!(rules(&source(&app, "greeter").await), found);
    source_.changed.notify_one();
    loop {
        let view = source(&app, "greeter").await;
        if rules(&view) == found[1..] {
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn source_tools_are_ordinary_tools() {
    let source_ = scripted_source([Ok(vec![discovered_tool("hello", text_runner("hi", None))])]);
    let app = TestApp::loading(
        App::builder()
            .source("greeter", source_)
            .tool(plain_tool("own")),
        None,
    )
    .await
    .with_sources_listed()
    .await;
    assert_eq!(tool_names(&app).await, ["hello", "own"]);
    assert_eq!(first_text(&app.invoke("hello", json!({})).await), "hi");
    assert_eq!(app.invoke("hello", json!({"x": 1})).await.0, 422);
    let (_, tool) = app.get("/tools/hello").await;
    assert_eq!(
        (&tool["available"], &tool["effect"]),
        (&json!(true), &json!("write"))
    );
    let shown = json!({"name": "greeter", "kind": "native", "state": "up", "tools": 1, "workers": 1, "replaced": 0, "doing": null, "fault": null,
        "fault_at": null, "warnings": [], "stopped": [], "operations": null, "sandbox": null, "findings": [{"tool": "hello", "rule": "vague-description",
        "message": "description: too short to tell a model anything; say what the tool does, with what, and when to use it"}]});
    assert_eq!(source(&app, "greeter").await, shown);
    assert_eq!(
        app.get("/readyz?verbose").await.1["sources"],
        json!([shown])
    );
    assert_eq!(
        app.samples("toolcrib_source_up").await,
        ["toolcrib_source_up{source=\"greeter\"} 1"]
    );
    assert_eq!(
        app.samples("toolcrib_source_replaced").await,
        ["toolcrib_source_replaced_total{source=\"greeter\"} 0"]
    );
}

#[tokio::test]
async fn source_with_an_invalid_tool_serves_none() {
    let cases: [(&str, Vec<DiscoveredTool>, &str); 5] = [
        (
            "clash",
            vec![
                discovered_tool("fine", text_runner("", None)),
                discovered_tool("own", text_runner("", None)),
            ],
            "`own` is a tool of the program already",
        ),
        (
            "name",
            vec![
                discovered_tool("fine", text_runner("", None)),
                discovered_tool("not a name", text_runner("", None)),
            ],
            "`not a name`: a tool name has",
        ),
        (
            "twice",
            vec![
                discovered_tool("fine", text_runner("", None)),
                discovered_tool("fine", text_runner("", None)),
            ],
            "two tools called `fine`",
        ),
        (
            "schema",
            vec![DiscoveredTool {
                input_schema: json!({"type": "object", "properties": {"a": {"type": "int"}}}),
                ..discovered_tool("odd", text_runner("", None))
            }],
            "tool `odd`: input_schema",
        ),
        (
            "between",
            vec![discovered_tool("shared", text_runner("", None))],
            "`shared` is a tool of source `first` already",
        ),
    ];
    let mut builder = App::builder().tool(plain_tool("own")).source(
        "first",
        scripted_source([Ok(vec![discovered_tool("shared", text_runner("", None))])]),
    );
    let mut says = Vec::new();
    for (name, offers, why) in cases {
        builder = builder.source(name, scripted_source([Ok(offers)]));
        says.push((name, why));
    }
    let app = TestApp::loading(builder, None)
        .await
        .with_sources_listed()
        .await;
    for (name, why) in says {
        let source = source(&app, name).await;
        // The script has one listing only; after a retry the fault names that.
        let fault = source["fault"].as_str().unwrap();
        assert!(
            fault.contains(why) || fault == "there is no more",
            "{name}: {source}"
        );
        assert_eq!(
            (&source["state"], &source["tools"]),
            (&json!("failed"), &json!(0)),
            "{source}"
        );
    }
    assert_eq!(tool_names(&app).await, ["own", "shared"]);
}

#[tokio::test]
async fn conflicting_source_returns_when_its_name_frees() {
    let (one, other) = (
        discovered_tool("shared", text_runner("first", None)),
        discovered_tool("other", text_runner("first", None)),
    );
    let first = scripted_source([Err("not yet"), Ok(vec![one]), Ok(vec![other])]);
    let second = scripted_source(
        (0..50).map(|_| Ok(vec![discovered_tool("shared", text_runner("second", None))])),
    );
    let builder = App::builder()
        .source("first", first)
        .source("second", second);
    let app = TestApp::loading(builder, None)
        .await
        .with_sources_listed()
        .await;
    while source(&app, "first").await["state"] != "up" {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(first_text(&app.invoke("shared", json!({})).await), "first");
    let view = source(&app, "second").await;
    assert_eq!(view["state"], "failed");
    assert!(
        view["fault"]
            .as_str()
            .unwrap()
            .contains("`shared` is a tool of source `first` already"),
        "{view}"
    );
    assert_eq!(
        app.post("/sources/first/restart", json!(null)).await.1["state"],
        "up"
    );
    while source(&app, "second").await["state"] != "up" {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(first_text(&app.invoke("shared", json!({})).await), "second");
}

#[tokio::test]
async fn source_names_are_hidden_from_callers() {
    let manifest = "callers:\n  - {name: ann, key: key-of-ann-0123456789}\n  - {name: root, key: key-of-root-0123456789, admin: true}\n";
    let slow = ScriptedSource {
        gate: Some(Arc::new(Semaphore::new(0))),
        ..ScriptedSource::default()
    };
    let app = TestApp::loading(
        App::builder().source("payroll", Arc::new(slow)),
        Some(manifest),
    )
    .await;
    let detail = async |key: Option<&str>| {
        app.send(request("GET", "/readyz", key, None)).await.1["detail"].clone()
    };
    assert_eq!(detail(None).await, "a source of tools is still loading");
    assert_eq!(
        detail(Some("key-of-ann-0123456789")).await,
        "a source of tools is still loading"
    );
    assert_eq!(
        detail(Some("key-of-root-0123456789")).await,
        "source `payroll` is still loading"
    );
}

#[tokio::test]
async fn source_names_are_unique() {
    let twice = App::builder()
        .source("s", scripted_source([]))
        .source("s", scripted_source([]));
    let folder = tempfile::tempdir().unwrap();
    let ledger = format!("sqlite://{}", folder.path().join("t.db").display());
    let error = twice.ledger(ledger).build().await.err().unwrap();
    assert!(
        error.to_string().contains("source `s` is declared twice"),
        "{error}"
    );
}

#[tokio::test]
async fn sources_end_with_the_service() {
    let says = text_runner("hi", None);
    let (alive, runs) = (Arc::downgrade(&says.alive), Arc::downgrade(&says));
    let listed = scripted_source([Ok(vec![discovered_tool("hello", says)])]);
    let app = TestApp::loading(App::builder().source("s", listed), None)
        .await
        .with_sources_listed()
        .await;
    assert_eq!(first_text(&app.invoke("hello", json!({})).await), "hi");
    app.close().await;
    assert!(alive.upgrade().is_none() && runs.upgrade().is_none());
}

/// Polls the source until its status fits.
async fn wait_until(app: &TestApp, name: &str, says: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..4000 {
        let view = source(app, name).await;
        if says(&view) {
            return view;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("never: {}", source(app, name).await);
}

#[tokio::test]
async fn changed_source_is_listed_and_swapped() {
    let (old, new) = (text_runner("old", None), text_runner("new", None));
    let (serving, released) = (Arc::downgrade(&old), Arc::downgrade(&new));
    let mut later = discovered_tool("later", text_runner("later", None));
    later.description = "Says it later.".into();
    let first = vec![
        discovered_tool("hello", old),
        discovered_tool("only_old", text_runner("", None)),
    ];
    let listed = scripted_source([Ok(first), Ok(vec![discovered_tool("hello", new), later])]);
    let app = TestApp::loading(App::builder().source("s", listed.clone()), None)
        .await
        .with_sources_listed()
        .await;
    let entry = Arc::downgrade(&app.registry().get("hello").unwrap());
    listed.changed.notify_one();
    wait_until(&app, "s", |_| listed.listings.load(Ordering::SeqCst) == 2).await;
    while tool_names(&app).await != ["hello", "later"] {
        tokio::task::yield_now().await;
    }
    assert_eq!(first_text(&app.invoke("later", json!({})).await), "later");
    // An unchanged tool keeps its whole stack: its breaker, its budget, its runner.
    assert_eq!(first_text(&app.invoke("hello", json!({})).await), "old");
    assert!(serving.upgrade().is_some() && entry.upgrade().is_some());
    assert!(released.upgrade().is_none());
    assert_eq!(
        source(&app, "s").await["replaced"],
        0,
        "nothing was started anew"
    );
}
