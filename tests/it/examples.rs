use std::collections::HashMap;
use std::path::Path;

use axum::body::Body;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use toolcrib::App;
use toolcrib::manifest::{self, ManifestInput};
use tower::ServiceExt;

use crate::support::request;

/// The files as they are, and a value for every variable that the examples name.
struct Examples;

impl ManifestInput for Examples {
    fn env_var(&self, name: &str) -> Option<String> {
        ["WEATHER_KEY", "RESEARCH_KEY", "OPERATOR_KEY"]
            .contains(&name)
            .then(|| format!("value-of-{name}"))
    }

    fn read_text(&self, path: &Path) -> std::io::Result<String> {
        std::fs::read_to_string(path)
    }
}

/// What is printed as an example must pass its own check, hints included.
#[test]
fn examples_pass_check_without_findings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let findings_of = |file: &Path| -> Vec<String> {
        let checked = manifest::check(file, &Examples, &HashMap::new());
        checked.findings.iter().map(ToString::to_string).collect()
    };
    assert_eq!(findings_of(&root.join("examples/toolcrib.yaml")), [""; 0]);

    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let block = readme
        .split("```yaml\n")
        .find(|block| block.starts_with("tools:"))
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("toolcrib.yaml");
    std::fs::write(&file, block.split("```").next().unwrap()).unwrap();
    assert_eq!(findings_of(&file), [""; 0]);
}

#[tokio::test]
async fn example_manifest_loads_and_its_tools_run() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/toolcrib.yaml");
    let loaded = manifest::load(&file, &Examples, &HashMap::new());
    let loaded = loaded.unwrap_or_else(|findings| panic!("{}", findings[0]));
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings, [""; 0]);
    assert_eq!((loaded.callers.len(), loaded.tools.len()), (2, 16));

    let folder = tempfile::tempdir().unwrap();
    let ledger = format!("sqlite://{}", folder.path().join("test.db").display());
    let app = loaded
        .tools
        .into_iter()
        .fold(App::builder(), toolcrib::AppBuilder::tool)
        .ledger(ledger);
    let app = app.build().await.unwrap();
    for (tool, arguments, says) in [
        ("calculator", json!({"expression": "6*7"}), "42"),
        ("read_notes", json!({"path": "todo.md"}), "plants"),
        ("top_customers", json!({"year": 2025}), "Di"),
        ("word_count", json!({"text": "one two three"}), "3"),
        ("sort_lines", json!({"text": "b\na\nb\n"}), "a\nb"),
        (
            "current_time",
            json!({"timezone": "Europe/Oslo"}),
            "Europe/Oslo",
        ),
    ] {
        let path = format!("/tools/{tool}/invoke");
        let sent = app.router().oneshot(request(
            "POST",
            &path,
            None,
            Some(json!({"arguments": arguments})),
        ));
        let bytes: axum::body::Bytes = BodyExt::collect(Body::new(sent.await.unwrap().into_body()))
            .await
            .unwrap()
            .to_bytes();
        let answer: Value = serde_json::from_slice(&bytes).unwrap();
        assert!(
            answer["content"][0]["text"]
                .as_str()
                .unwrap()
                .contains(says),
            "{tool}: {answer}"
        );
    }
}
