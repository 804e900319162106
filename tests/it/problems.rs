use serde_json::{Value, json};
use toolcrib::call::ErrorKind;
use toolcrib::{Effect, Tool};

use crate::support::TestApp;

#[test]
fn every_kind_has_row_in_reference() {
    let page = include_str!("../../docs/reference/errors.md");
    for kind in ErrorKind::ALL {
        assert!(
            page.contains(&format!("| `{}` |", kind.as_str())),
            "{}",
            kind.as_str()
        );
    }
}

fn strict_tool() -> Tool {
    Tool::new("strict", "…")
        .param("n", "integer", "A number")
        .effect(Effect::Read)
        .call(|_, _| async { Ok("x") })
}

/// A problem without what differs each time.
fn normalized(mut problem: Value) -> Value {
    if problem.get("invocation_id").is_some() {
        problem["invocation_id"] = "…".into();
    }
    problem
}

#[tokio::test]
async fn problems_have_their_shape() {
    let app = TestApp::new([strict_tool()]).await;
    let (_, problem) = app.invoke("strict", json!({"m": 1})).await;
    insta::assert_json_snapshot!("invalid_arguments", normalized(problem));
    let (_, problem) = app.invoke("strickt", json!({})).await;
    insta::assert_json_snapshot!("unknown_tool", normalized(problem));
    let (_, problem) = app.post("/tools/strict/invoke", json!({"n": 1})).await;
    insta::assert_json_snapshot!("invalid_request", normalized(problem));
}
