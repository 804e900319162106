//! Python modules of the manifest, with a real interpreter: faults, restarts, stored results.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{TestApp, first_text};

const WEATHER: &str = "import os\n\ndef forecast(city: str, days: int = 1) -> str:\n    \"\"\"Forecast for a city.\n\n    Args:\n        city: City and country\n        days: How many days\n    \"\"\"\n    return f'{city} {days} {os.environ.get(\"KEY\")}'\n\ndef pid() -> int:\n    \"\"\"The process.\"\"\"\n    return os.getpid()\n";

/// A service with this file beside the manifest.
async fn app(manifest: &str, module: &str) -> TestApp {
    app_with_files(manifest, &[("m.py", module)])
        .await
        .with_sources_listed()
        .await
}

async fn app_with_files(manifest: &str, files: &[(&str, &str)]) -> TestApp {
    TestApp::with_files(manifest, files).await
}

async fn source(app: &TestApp, name: &str) -> Value {
    let (_, list) = app.get("/sources").await;
    list["sources"]
        .as_array()
        .unwrap()
        .iter()
        .find(|source| source["name"] == name)
        .unwrap()
        .clone()
}

async fn module_pid(app: &TestApp) -> String {
    let reply = app.invoke("pid", json!({})).await;
    assert_eq!(reply.0, 200, "{}", reply.1);
    first_text(&reply).to_owned()
}

/// Waits, by asking, until a source is in that state.
async fn wait_for_state(app: &TestApp, name: &str, state: &str) {
    for _ in 0..5000 {
        if source(app, name).await["state"] == state {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("never {state}: {}", source(app, name).await);
}

#[tokio::test]
async fn failed_source_refuses_at_no_cost() {
    let manifest = "python_modules:\n  weather:\n    module: m.py\n    tools: {forecast: {limits: [{calls: 1, per: lifetime}], idempotency: required}}\n    functions: [forecast]\n";
    let app = app(manifest, "import nothing_of_that_name\n").await;
    let fault = source(&app, "weather").await["fault"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        fault.contains("nothing_of_that_name") && fault.contains("m.py"),
        "{fault}"
    );
    let keyed = || {
        let mut request = crate::support::request(
            "POST",
            "/tools/forecast/invoke",
            None,
            Some(json!({"arguments": {"city": "Oslo"}})),
        );
        request
            .headers_mut()
            .insert("idempotency-key", "k-1".parse().unwrap());
        request
    };
    assert_eq!(app.send(keyed()).await.0, 503);
    app.write("m.py", WEATHER);
    let (status, view) = app.post("/sources/weather/restart", json!(null)).await;
    assert_eq!(
        (status.as_u16(), &view["state"]),
        (200, &json!("up")),
        "{view}"
    );
    let reply = app.send(keyed()).await;
    assert_eq!((reply.0.as_u16(), first_text(&reply)), (200, "Oslo 1 None"));
    assert_eq!(app.send(keyed()).await.1, reply.1);
}

/// A module whose tools depend on another file.
const GROWING: &str = r#"
import os
from toolcrib import tool

@tool
def first() -> str:
    """Comes first."""
    return "first"

if os.path.exists(os.path.join(os.path.dirname(__file__), "more")):
    @tool
    def late() -> str:
        """Comes later."""
        return "late"
"#;

#[tokio::test]
async fn restart_that_fits_clears_the_fault() {
    let manifest = "python_modules:\n  m: {module: m.py}\n";
    let app = app(manifest, GROWING).await;
    app.write(
        "toolcrib.yaml",
        &manifest.replace("m.py", "m.py, tools: {late: {effect: read}}"),
    );
    assert_eq!(app.reload().await, None);
    let fault = source(&app, "m").await["fault"].clone();
    assert!(
        fault.as_str().unwrap().starts_with("tools.late: "),
        "{fault}"
    );
    // The module offers the tool now, although its own file is the same.
    app.write("more", "");
    let (_, m) = app.post("/sources/m/restart", json!(null)).await;
    assert_eq!(
        (&m["state"], &m["tools"], &m["fault"]),
        (&json!("up"), &json!(2), &json!(null)),
        "{m}"
    );
}

#[tokio::test]
async fn newly_declared_name_stops_the_conflicting_source() {
    let manifest = "python_modules:\n  m: {module: m.py, functions: [forecast, pid]}\n";
    let app = app(manifest, WEATHER).await;
    app.write(
        "toolcrib.yaml",
        &format!("{manifest}tools: {{pid: {{kind: native, use: calculator}}}}\n"),
    );
    assert_eq!(app.reload().await, None);
    let m = source(&app, "m").await;
    assert_eq!((&m["state"], &m["tools"]), (&json!("failed"), &json!(0)));
    assert!(
        m["fault"]
            .as_str()
            .unwrap()
            .contains("`pid` is a tool of the manifest already; give the source a prefix"),
        "{m}"
    );
    assert_eq!(
        first_text(&app.invoke("pid", json!({"expression": "6*7"})).await),
        "42"
    );
    assert_eq!(app.invoke("forecast", json!({"city": "Oslo"})).await.0, 503);
    app.write("toolcrib.yaml", manifest);
    assert_eq!(app.reload().await, None);
    wait_for_state(&app, "m", "up").await;
    assert_eq!(app.invoke("forecast", json!({"city": "Oslo"})).await.0, 200);
}

#[tokio::test]
async fn module_secrets_are_redacted() {
    let manifest = "python_modules:\n  m: {module: m.py, functions: [forecast], environment: {KEY: \"${file:key}\"}}\n";
    let files = [("m.py", WEATHER), ("key", "hunter2-hunter2")];
    let app = app_with_files(manifest, &files)
        .await
        .with_sources_listed()
        .await;
    assert_eq!(
        first_text(&app.invoke("forecast", json!({"city": "Oslo"})).await),
        "Oslo 1 [redacted]"
    );
    app.write("m.py", "import os\nraise ValueError(os.environ['KEY'])\n");
    let (_, view) = app.post("/sources/m/restart", json!(null)).await;
    let fault = view["fault"].as_str().unwrap();
    assert!(
        fault.contains("[redacted]") && !fault.contains("hunter2"),
        "{fault}"
    );
    assert_eq!(
        first_text(&app.invoke("forecast", json!({"city": "Oslo"})).await),
        "Oslo 1 [redacted]"
    );
}

#[tokio::test]
async fn results_survive_restart_of_same_file() {
    let manifest = "python_modules:\n  m:\n    module: m.py\n    functions: [pid]\n    sandbox: none\n    tools: {pid: {effect: read, cache: {ttl: 1h, scope: shared}}}\n";
    let app = app(manifest, WEATHER).await;
    let first = module_pid(&app).await;
    assert_eq!(
        app.post("/sources/m/restart", json!(null)).await.1["state"],
        "up"
    );
    let next_call = app.invoke("pid", json!({})).await;
    assert_eq!(
        (first_text(&next_call), &next_call.1["meta"]["cache"]),
        (&*first, &json!("hit"))
    );
    app.write("m.py", &format!("{WEATHER}\n# other\n"));
    assert_eq!(
        app.post("/sources/m/restart", json!(null)).await.1["state"],
        "up"
    );
    assert_ne!(module_pid(&app).await, first);
}
