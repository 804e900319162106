//! Lists of tools: what their entries mean, and what callers learn of tools that they may not use.

use serde_json::{Value, json};
use toolcrib::{Effect, Tool};

use crate::support::{TestApp, first_text};

fn tool(name: &str) -> Tool {
    Tool::new(name, "…")
        .effect(Effect::Read)
        .call(|_, _| async { Ok("ran") })
}

const TOOLS: &str =
    "tools:\n  send_mail: {kind: native, aliases: [mailer]}\n  calculate: {kind: native}\n";

async fn app_with_grants(lists: &str) -> TestApp {
    let callers = format!(
        "callers:\n  - {{name: root, key: key-of-root, admin: true}}\n  - {{name: ann, key: key-of-ann, {lists}}}\n"
    );
    TestApp::with_manifest(
        &format!("{TOOLS}{callers}"),
        [tool("send_mail"), tool("calculate")],
    )
    .await
}

async fn invoke(app: &TestApp, name: &str) -> (u16, Value) {
    let (status, answer) = app
        .post_as(
            "key-of-ann",
            &format!("/tools/{name}/invoke"),
            json!({"arguments": {}}),
        )
        .await;
    (status.as_u16(), answer)
}

async fn listed_names(app: &TestApp) -> Vec<String> {
    let (_, answer) = app.get_as("key-of-ann", "/tools").await;
    answer["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn denials_cover_aliases_and_spellings() {
    for entry in [
        "send_mail",
        "mailer",
        "Send_Mail",
        "MAILER",
        "functions.send-mail",
        "'mail*'",
        "'Send-*'",
    ] {
        let app = app_with_grants(&format!("deny: [{entry}]")).await;
        for name in ["send_mail", "mailer"] {
            assert_eq!(invoke(&app, name).await.0, 403, "{entry} {name}");
        }
        assert_eq!(invoke(&app, "Send-Mail").await.0, 404, "{entry}");
        assert_eq!(listed_names(&app).await, ["calculate"], "{entry}");
    }
}

#[tokio::test]
async fn grants_cover_aliases_and_spellings() {
    for (entry, names) in [
        ("mailer", &["send_mail"][..]),
        ("Send-Mail", &["send_mail"]),
        ("tools.mailer", &["send_mail"]),
        ("'mail*'", &["send_mail"]),
        ("'Send-*'", &[]),
        ("calculator", &[]),
    ] {
        assert_eq!(
            listed_names(&app_with_grants(&format!("allow: [{entry}]")).await).await,
            names,
            "{entry}"
        );
    }
}

#[tokio::test]
async fn tool_names_match_no_look_alike() {
    let callers = "callers:\n  - {name: ann, key: key-of-ann, allow: [run_it]}\n";
    let app = TestApp::with_manifest(callers, [tool("run_it"), tool("RUN-IT")]).await;
    assert_eq!(listed_names(&app).await, ["run_it"]);
}

#[tokio::test]
async fn request_denials_reveal_no_hidden_tool() {
    let app = app_with_grants("allow: [calculate]").await;
    let warnings = async |deny: &[&str]| {
        let body = json!({"message": {"tool_name": "calculate", "arguments": {}}, "deny": deny});
        let (status, answer) = app.post_as("key-of-ann", "/calls", body).await;
        assert_eq!(status, 200, "{answer}");
        answer["warnings"].as_array().map_or(0, Vec::len)
    };
    for hidden in [
        "s*",
        "send_mail",
        "mailer",
        "Send-Mail",
        "functions.mailer",
        "*mail*",
    ] {
        assert_eq!(
            warnings(&[hidden]).await,
            warnings(&["frobnicate"]).await,
            "{hidden}"
        );
        assert_eq!(warnings(&[hidden]).await, 1, "{hidden}");
    }
    assert_eq!(warnings(&["calc*"]).await, 0);
}

#[tokio::test]
async fn refusals_repeat_the_requested_name() {
    let app = app_with_grants("deny: [send_mail]").await;
    let (status, refused) = invoke(&app, "mailer").await;
    assert_eq!(status, 403);
    let body = json!({"arguments": {}});
    let validated = app
        .post_as("key-of-ann", "/tools/mailer/validate", body)
        .await;
    let detail = app.get_as("key-of-ann", "/tools/mailer").await;
    let message = json!({"message": {"tool_name": "mailer", "arguments": {}}});
    let called = app.post_as("key-of-ann", "/calls", message).await;
    let rows = loop {
        let rows = app.get_as("key-of-ann", "/invocations").await;
        if rows.1["invocations"].as_array().unwrap().len() == 2 {
            break rows;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    };
    for answer in [&refused, &validated.1, &detail.1, &called.1, &rows.1] {
        let text = answer.to_string();
        assert!(
            text.contains("mailer") && !text.contains("send_mail"),
            "{text}"
        );
    }
    assert!(first_text(&detail).contains("`mailer`"));
}

#[tokio::test]
async fn blanks_around_a_key_do_not_count() {
    let app = app_with_grants("allow: []").await;
    for (header, value, status) in [
        ("authorization", "Bearer key-of-ann", 200),
        ("authorization", "Bearer   key-of-ann \t", 200),
        ("authorization", "Bearer key-of- ann", 401),
        ("authorization", "Bearer ", 401),
        ("authorization", "Bearer", 401),
        ("x-api-key", "key-of-ann", 200),
        ("x-api-key", "", 401),
    ] {
        let mut request = crate::support::request("GET", "/tools", None, None);
        request.headers_mut().insert(header, value.parse().unwrap());
        assert_eq!(app.send(request).await.0, status, "{header}: {value:?}");
    }
}
