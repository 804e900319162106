use axum::http::StatusCode;
use serde_json::{Value, json};
use toolcrib::{Tool, ToolError};

use crate::support::TestApp;

fn greet() -> Tool {
    Tool::new("greet", "Greets.").call(|_, _| async { Ok("hello") })
}

fn fails() -> Tool {
    Tool::new("fails", "Fails.").call(|_, _| async { Err::<&str, _>(ToolError::from("no")) })
}

/// The counts of these fields, by tool.
fn counts(answer: &Value, names: [&str; 3]) -> Vec<(String, [u64; 3])> {
    let mut all: Vec<(String, [u64; 3])> = Vec::new();
    // The calls may lie on both sides of the end of a bucket.
    for row in answer["buckets"].as_array().unwrap() {
        let label = row["tool"].as_str().or(row["run_id"].as_str());
        let label = label.unwrap_or_default().to_owned();
        let of_row = names.map(|name| row[name].as_u64().unwrap());
        match all.iter_mut().find(|(known, _)| *known == label) {
            Some((_, sums)) => sums.iter_mut().zip(of_row).for_each(|(sum, n)| *sum += n),
            None => all.push((label, of_row)),
        }
    }
    all.sort();
    all
}

#[tokio::test]
async fn usage_is_counted_by_time() {
    let app = TestApp::new([greet(), fails()]).await;
    app.invoke("greet", json!({})).await;
    app.invoke("greet", json!({})).await;
    app.invoke("fails", json!({})).await;
    let body = json!({"arguments": {}, "run_id": "r1"});
    app.post("/tools/greet/invoke", body).await;
    for bucket in ["1m", "1h", "1d"] {
        let (status, answer) = app.get(&format!("/usage?bucket={bucket}&by=tool")).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!(
            counts(&answer, ["calls", "succeeded", "failed"]),
            [
                ("fails".to_owned(), [1, 0, 1]),
                ("greet".to_owned(), [3, 3, 0])
            ]
        );
        let row = &answer["buckets"][0];
        assert_eq!((&row["caller"], row.get("run_id")), (&Value::Null, None));
        assert!(row["p50_ms"].is_number() && row["start"].is_string());
    }
    let (_, answer) = app.get("/usage?bucket=1d&by=run&since=1h").await;
    assert_eq!(
        counts(&answer, ["calls", "succeeded", "failed"]),
        [(String::new(), [3, 2, 1]), ("r1".to_owned(), [1, 1, 0])]
    );
    let (_, answer) = app.get("/usage?bucket=1h&since=2h&until=1h").await;
    assert_eq!(answer, json!({"buckets": []}));
    let (_, totals) = app.get("/usage").await;
    assert_eq!(totals["tools"].as_array().unwrap().len(), 2, "as before");
}

#[tokio::test]
async fn caller_sees_its_own_usage_by_time() {
    let manifest = "callers:\n  - {name: ann, key: ann-key-0123456789}\n  - {name: root, key: root-key-0123456789, admin: true}\n";
    let app = TestApp::with_manifest(manifest, [greet()]).await;
    for key in ["ann-key-0123456789", "root-key-0123456789"] {
        app.post_as(key, "/tools/greet/invoke", json!({"arguments": {}}))
            .await;
    }
    for (key, calls) in [("ann-key-0123456789", 1), ("root-key-0123456789", 2)] {
        let (_, answer) = app.get_as(key, "/usage?bucket=1d&by=tool").await;
        let names = ["calls", "succeeded", "failed"];
        assert_eq!(
            counts(&answer, names),
            [("greet".to_owned(), [calls, calls, 0])]
        );
    }
}

#[tokio::test]
async fn wrong_time_ranges_are_explained() {
    let app = TestApp::new([]).await;
    for (query, part) in [
        ("since=1h", "`since` needs `bucket`: 1m, 1h or 1d"),
        ("bucket=5m", "`5m` is not known here"),
        (
            "bucket=1m&since=2d",
            "2881 buckets are too many: at most 1500",
        ),
        ("bucket=1m&since=soon", "since is a time"),
        ("bucket=1m&until=soon", "until is a time"),
        ("bucket=1m&since=1h&until=2h", "since must be before until"),
        ("bucket=1m&by=tools", "did you mean `tool`"),
    ] {
        let (status, problem) = app.get(&format!("/usage?{query}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{query}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(part), "{query}: {detail}");
    }
}
