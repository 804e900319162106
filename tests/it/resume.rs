use axum::http::StatusCode;
use serde_json::{Value, json};
use toolcrib::{Effect, Tool};

use crate::support::{TestApp, request};

const AGENT: &str = "agent-key-0123456789";
const OTHER: &str = "other-key-0123456789";
const BOSS: &str = "boss-key-012345678901";
const MANIFEST: &str = "callers:
  - {name: agent, key: agent-key-0123456789}
  - {name: other, key: other-key-0123456789}
  - {name: boss, key: boss-key-012345678901, admin: true}
tools:
  look: {kind: native}
  pay: {kind: native, approval: {wait: 10ms}}
";

fn tools() -> [Tool; 2] {
    let tool = |name: &str, effect| {
        let kind = name.to_owned();
        Tool::new(name, "Test.")
            .effect(effect)
            .input_schema(json!({"type": "object", "properties": {"to": {"type": "string"}}}))
            .call(move |arguments, _| {
                let text = format!("{kind} {}", arguments["to"].as_str().unwrap_or_default());
                async move { Ok(text) }
            })
    };
    [tool("look", Effect::Read), tool("pay", Effect::Write)]
}

struct Service(TestApp);

impl Service {
    async fn new(manifest: &str) -> Self {
        Self(TestApp::with_manifest(manifest, tools()).await)
    }

    async fn calls(&self, body: Value) -> Value {
        let (status, answer) = self.0.post_as(AGENT, "/calls", body).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer
    }

    async fn refused(&self, key: &str, body: Value) -> (u16, String) {
        let (status, answer) = self.0.post_as(key, "/calls", body).await;
        let detail = answer["detail"].as_str().unwrap_or_default().to_owned();
        (status.as_u16(), detail)
    }

    async fn decide(&self, id: &Value, verdict: &str) {
        let path = format!("/invocations/{}/{verdict}", id.as_str().unwrap());
        let (status, body) = self
            .0
            .post_as(BOSS, &path, json!({"note": "by phone"}))
            .await;
        assert_eq!(status, StatusCode::OK, "{body}");
        self.wait_until_ended(id).await;
    }

    /// An approved call may still run when the decision is answered.
    async fn wait_until_ended(&self, id: &Value) {
        let path = format!("/invocations/{}", id.as_str().unwrap());
        for _ in 0..5000 {
            let (_, call) = self.0.get_as(BOSS, &path).await;
            if !matches!(call["state"].as_str(), Some("waiting" | "running")) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        panic!("the call {id} did not end");
    }
}

/// A message of OpenAI with calls of these tools.
fn message(tools: &[&str]) -> Value {
    let calls = tools.iter().enumerate().map(|(index, tool)| {
        json!({"id": format!("c{index}"), "type": "function",
            "function": {"name": tool, "arguments": format!(r#"{{"to": "n{index}"}}"#)}})
    });
    json!({"role": "assistant", "tool_calls": calls.collect::<Vec<_>>()})
}

#[tokio::test]
async fn decided_calls_are_told_in_one_user_message() {
    let service = Service::new(MANIFEST).await;
    let sent = service.calls(message(&["pay", "look", "pay"])).await;
    assert_eq!(
        sent["messages"].as_array().unwrap().len(),
        3,
        "complete at once"
    );
    assert!(sent.get("waiting").is_none());
    let [first, second] = [0, 2].map(|at| sent["results"][at]["invocation_id"].clone());
    let ask = json!({"resume": [first, second], "dialect": "anthropic"});
    let waiting = service.calls(ask.clone()).await;
    assert_eq!(waiting["messages"], json!([]));
    assert_eq!(waiting["waiting"], json!([first, second]));
    assert_eq!(waiting["results"][0]["tool_use_id"], "c0");

    service.decide(&first, "approve").await;
    service.decide(&second, "deny").await;
    let told = service.calls(ask).await;
    assert_eq!(
        (&told["waiting"], &told["dialect"]),
        (&json!([]), &json!("anthropic"))
    );
    let text = told["messages"][0]["content"][0]["text"].as_str().unwrap();
    assert_eq!(told["messages"][0]["role"], "user");
    assert!(
        text.contains("pay n0") && text.contains("by phone"),
        "{text}"
    );
    assert_eq!(told["results"][0]["content"][0]["text"], "pay n0");
    assert_eq!(told["results"][1]["kind"], "approval_denied");
    assert_eq!(told["results"][1]["tool_use_id"], "c2");
}

#[tokio::test]
async fn held_message_gets_all_its_results_together() {
    let service = Service::new(MANIFEST).await;
    let held = service
        .calls(json!({"message": message(&["look", "pay", "nothing", "pay"]), "waiting": "hold"}))
        .await;
    assert_eq!(held["messages"], json!([]));
    let ids = held["waiting"].as_array().unwrap().clone();
    assert_eq!(ids.len(), 2);
    assert_eq!(held["results"][0]["content"][0]["text"], "look n0");

    service.decide(&ids[1], "approve").await;
    let ask = json!({"resume": ids});
    let pending = service.calls(ask.clone()).await;
    assert_eq!(
        (&pending["messages"], &pending["waiting"]),
        (&json!([]), &json!([ids[0]]))
    );
    assert_eq!(pending["results"][3]["content"][0]["text"], "pay n3");

    service.decide(&ids[0], "approve").await;
    // The message is in the ledger.
    let service = Service(service.0.restart(tools()).await);
    let answer = service
        .calls(json!({"resume": [ids[1], ids[0]], "dialect": "openai"}))
        .await;
    let messages = answer["messages"].as_array().unwrap();
    let replies: Vec<_> = messages
        .iter()
        .map(|one| {
            (
                one["role"].as_str().unwrap(),
                one["tool_call_id"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        replies,
        [
            ("tool", "c0"),
            ("tool", "c1"),
            ("tool", "c2"),
            ("tool", "c3")
        ]
    );
    assert_eq!(messages[0]["content"], "look n0");
    assert_eq!(messages[1]["content"], "pay n1");
    assert!(messages[2]["content"].as_str().unwrap().contains("nothing"));
    assert_eq!(answer["waiting"], json!([]));
    let again = service.calls(ask).await;
    assert_eq!(
        again["messages"], answer["messages"],
        "asked again, it is the same"
    );
}

#[tokio::test]
async fn held_message_that_is_sent_again_with_its_key_gets_the_same_ids() {
    let service = Service::new(MANIFEST).await;
    let send = async || {
        let body = json!({"message": message(&["look", "pay", "pay"]), "waiting": "hold"});
        let mut request = request("POST", "/calls", Some(AGENT), Some(body));
        let headers = request.headers_mut();
        headers.insert("idempotency-key", "turn".parse().unwrap());
        service.0.send(request).await.1
    };
    let (first, again) = (send().await, send().await);
    assert_eq!(first["waiting"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&again["waiting"], &again["messages"]),
        (&first["waiting"], &json!([])),
        "{again}"
    );
    for id in first["waiting"].as_array().unwrap() {
        service.decide(id, "approve").await;
    }
    let answer = service.calls(json!({"resume": again["waiting"]})).await;
    assert_eq!(answer["messages"][2]["content"], "pay n2");
}

#[tokio::test]
async fn message_without_waiting_calls_is_not_held() {
    let service = Service::new(MANIFEST).await;
    let (_, answer) = service
        .0
        .post_as(AGENT, "/calls?waiting=hold", message(&["look"]))
        .await;
    assert_eq!(answer["messages"][0]["content"], "look n0");
    assert!(answer.get("waiting").is_none());
}

#[tokio::test]
async fn results_that_may_not_be_stored_are_held_in_memory() {
    let manifest = MANIFEST.replace(
        "look: {kind: native}",
        "look: {kind: native, capture: digest}",
    );
    let service = Service::new(&manifest).await;
    let held = service
        .calls(json!({"message": message(&["look", "pay"]), "waiting": "hold"}))
        .await;
    let ids = held["waiting"].clone();
    service.decide(&ids[0], "approve").await;
    let answer = service.calls(json!({"resume": ids})).await;
    assert_eq!(answer["messages"][0]["content"], "look n0");
    let service = Service(service.0.restart(tools()).await);
    let answer = service
        .calls(json!({"resume": ids, "dialect": "openai"}))
        .await;
    let text = answer["messages"][0]["content"].as_str().unwrap();
    assert!(
        text.contains("pay n1") && !text.contains("look n0"),
        "{text}"
    );
}

#[tokio::test]
async fn invalid_resume_is_explained() {
    let service = Service::new(MANIFEST).await;
    let held = json!({"message": message(&["pay", "pay"]), "waiting": "hold"});
    let ids = service.calls(held.clone()).await["waiting"].clone();
    let plain = service.calls(message(&["pay"])).await["results"][0]["invocation_id"].clone();
    let (_, looked) = service
        .0
        .post_as(AGENT, "/tools/look/invoke", json!({"arguments": {}}))
        .await;
    for (body, status, words) in [
        (json!({"resume": []}), 400, "1 to 256"),
        (json!({"resume": ["x"]}), 400, "1 to 256"),
        (json!({"resume": [plain]}), 400, "`dialect`: openai"),
        (
            json!({"resume": [plain], "dialect": "french"}),
            400,
            "there is no dialect",
        ),
        (
            json!({"resume": [plain], "message": {}}),
            400,
            "not with `message`",
        ),
        (json!({"resume": [ids[0]]}), 400, "come together"),
        (
            json!({"resume": [ids[0], ids[1], plain]}),
            400,
            "come together",
        ),
        (json!({"resume": [plain, ids[0]]}), 400, "two requests"),
        (json!({"resume": ids, "dialect": "gemini"}), 400, "`openai`"),
        (
            json!({"resume": [looked["invocation_id"]]}),
            404,
            "that waited for approval",
        ),
        (
            json!({"message": message(&["look"]), "waiting": "never"}),
            400,
            "`hold`",
        ),
    ] {
        let refused = service.refused(AGENT, body.clone()).await;
        assert_eq!(refused.0, status, "{body}");
        assert!(refused.1.contains(words), "{body}: {}", refused.1);
    }
    let foreign = service.refused(OTHER, json!({"resume": ids})).await;
    assert_eq!(foreign.0, 404, "{}", foreign.1);
}
