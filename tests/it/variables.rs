//! Variables that tools, Python modules and MCP servers declare: set, by default, or absent.

use serde_json::{Value, json};

use crate::support::{TestApp, first_text};

const PATH_IS_SET: &str = "PATH";
const UNSET: &str = "TOOLCRIB_TEST_NOT_SET";

async fn app_with_command(env: &str, environment: &str) -> TestApp {
    let manifest = format!(
        "tools:\n  show:\n    kind: command\n    description: d\n    command: [/usr/bin/env]\n    output: text\n    env: [{env}]\n    environment: {environment}\n"
    );
    TestApp::with_manifest(&manifest, []).await
}

async fn shown_env(app: &TestApp, tool: &str) -> Value {
    app.get(&format!("/tools/{tool}")).await.1["env"].clone()
}

#[tokio::test]
async fn default_makes_a_variable_optional() {
    let app = app_with_command(
        &format!("{{name: {UNSET}, default: metric-units}}"),
        &format!("{{U: \"${{env:{UNSET}}}\"}}"),
    )
    .await;
    let env =
        json!([{"name": UNSET, "description": "", "required": false, "default": "metric-units"}]);
    assert_eq!(shown_env(&app, "show").await, env);
    let reply = app.invoke("show", json!({})).await;
    assert!(
        first_text(&reply)
            .lines()
            .any(|line| line == "U=metric-units"),
        "no secret: {}",
        first_text(&reply)
    );
}

#[tokio::test]
async fn setting_with_absent_variable_is_omitted() {
    let environment = format!("{{A: \"${{env:{UNSET}}}\", B: \"Bearer ${{env:{UNSET}}}\", C: c}}");
    let app = app_with_command(&format!("{{name: {UNSET}, required: false}}"), &environment).await;
    let env = json!([{"name": UNSET, "description": "", "required": false, "default": null}]);
    assert_eq!(shown_env(&app, "show").await, env);
    let reply = app.invoke("show", json!({})).await;
    let lines: Vec<&str> = first_text(&reply)
        .lines()
        .filter(|line| !line.starts_with("TOOLCRIB_"))
        .collect();
    assert_eq!(lines, ["C=c", "PATH=/usr/local/bin:/usr/bin:/bin"]);
}

const MODULE: &str =
    "import os\n\ndef look() -> dict:\n    \"\"\"Looks.\"\"\"\n    return dict(os.environ)\n";

#[tokio::test]
async fn module_has_its_declared_variables() {
    let manifest = format!(
        "python_modules:\n  m:\n    module: m.py\n    functions: [look]\n    \
         env: [{{name: {PATH_IS_SET}}}, {{name: {UNSET}, required: false}}, {{name: {UNSET}_2, default: two}}, {{name: {UNSET}_3, default: three}}]\n    \
         environment: {{{UNSET}_3: own, COPY: \"${{env:{UNSET}_2}}\", NONE: \"${{env:{UNSET}}}\"}}\n"
    );
    let app = TestApp::with_files(&manifest, &[("m.py", MODULE)])
        .await
        .with_sources_listed()
        .await;
    let (_, reply) = app.invoke("look", json!({})).await;
    let seen = &reply["structured_content"];
    assert!(seen[PATH_IS_SET].is_string(), "{reply}");
    assert_eq!(
        (
            &seen["COPY"],
            &seen[format!("{UNSET}_2")],
            &seen[format!("{UNSET}_3")]
        ),
        (&json!("two"), &json!("two"), &json!("own"))
    );
    assert!(
        seen.get(UNSET).is_none() && seen.get("NONE").is_none(),
        "{seen}"
    );
    let env = shown_env(&app, "look").await;
    let required: Vec<bool> = env
        .as_array()
        .unwrap()
        .iter()
        .map(|var| var["required"].as_bool().unwrap())
        .collect();
    assert_eq!(required, [true, false, false, false]);
}

const SERVER: &str = r#"
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        continue
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "look", "description": "Looks.", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": json.dumps(dict(os.environ))}]}
    else:
        result = None
    said = {"result": result} if result else {"error": {"code": -32601, "message": "no such method"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
"#;

#[tokio::test]
async fn server_has_its_declared_variables() {
    let manifest = format!(
        "mcp_servers:\n  s:\n    command: [python3, server.py]\n    \
         env: [{{name: {UNSET}, required: false}}, {{name: {UNSET}_2, default: two}}]\n    environment: {{NONE: \"${{env:{UNSET}}}\"}}\n"
    );
    let app = TestApp::with_files(&manifest, &[("server.py", SERVER)])
        .await
        .with_sources_listed()
        .await;
    let reply = app.invoke("s_look", json!({})).await;
    let seen: Value = serde_json::from_str(first_text(&reply)).unwrap();
    assert_eq!(seen[format!("{UNSET}_2")], "two");
    assert!(
        seen.get(UNSET).is_none() && seen.get("NONE").is_none(),
        "{seen}"
    );
    assert_eq!(shown_env(&app, "s_look").await[1]["default"], "two");
}
