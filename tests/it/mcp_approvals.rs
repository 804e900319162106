//! Approvals over MCP: forms for callers that may decide, URLs and words for all others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt;
use serde_json::{Value, json};
use toolcrib::{Effect, Tool};

use crate::support::TestApp;
use crate::support::mcp::{
    last_message, merge, messages, modern_request, next_message, rpc_message,
};

const CAROL: &str = "carol-key-0123456789";
const DAVE: &str = "dave-key-01234567890";
const BOSS: &str = "boss-key-012345678901";

struct Service {
    app: TestApp,
    runs: Arc<AtomicUsize>,
}

impl Service {
    async fn new() -> Self {
        Self::with("", "wait: 20ms").await
    }

    async fn with(server: &str, policy: &str) -> Self {
        let manifest = format!(
            "{server}callers:
  - {{name: carol, key: {CAROL}}}
  - {{name: dave, key: {DAVE}}}
  - {{name: boss, key: {BOSS}, admin: true}}
tools:
  pay: {{kind: native, approval: {{by: [carol], message: Check it., {policy}}}}}
"
        );
        let runs = Arc::new(AtomicUsize::new(0));
        let count = runs.clone();
        let tool = Tool::new("pay", "Pays.")
            .param("amount", "integer", "How much")
            .effect(Effect::Write)
            .call(move |arguments, _| {
                let count = count.clone();
                async move {
                    count.fetch_add(1, Ordering::SeqCst);
                    Ok(format!("paid {}", arguments["amount"]))
                }
            });
        let app = TestApp::with_manifest(&manifest, [tool]).await;
        Self { app, runs }
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    /// A call of 2026-07-28 by a client with these elicitation modes.
    async fn call(&self, key: &str, modes: Value, amount: u32, round: Value) -> Value {
        let capabilities = json!({"io.modelcontextprotocol/clientCapabilities": modes});
        let params = json!({"name": "pay", "arguments": {"amount": amount}, "_meta": capabilities});
        let request = modern_request("tools/call", merge(params, round), Some(key));
        last_message(self.app.respond(request).await).await.1
    }

    /// The question about a new call of `CAROL`, and its state.
    async fn asked(&self, amount: u32) -> (Value, String) {
        let answer = self.call(CAROL, forms(), amount, json!({})).await;
        let result = &answer["result"];
        assert_eq!(result["resultType"], "input_required", "{answer}");
        let state = result["requestState"].as_str().unwrap().to_owned();
        (result["inputRequests"]["approval"].clone(), state)
    }

    async fn state_of(&self, id: &str) -> Value {
        let call = format!("/invocations/{id}");
        let (_, row) = self.app.get_as(BOSS, &call).await;
        row["state"].clone()
    }

    async fn only_call(&self) -> Value {
        let (_, list) = self.app.get_as(BOSS, "/approvals").await;
        assert_eq!(list["approvals"].as_array().unwrap().len(), 1, "{list}");
        list["approvals"][0].clone()
    }
}

fn forms() -> Value {
    json!({"elicitation": {}})
}

fn urls() -> Value {
    json!({"elicitation": {"url": {}}})
}

fn answer(action: &str, state: &str) -> Value {
    let content = json!({"note": "by phone"});
    let answer = match action {
        "accept" => json!({"action": action, "content": content}),
        _ => json!({"action": action}),
    };
    json!({"inputResponses": {"approval": answer}, "requestState": state})
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap()
}

#[tokio::test]
async fn accepted_form_runs_the_call_once() {
    let service = Service::new().await;
    let (question, state) = service.asked(5).await;
    assert_eq!(
        (&question["method"], &question["params"]["mode"]),
        (&json!("elicitation/create"), &json!("form"))
    );
    let message = question["params"]["message"].as_str().unwrap();
    assert!(
        message.contains("Check it.") && message.contains(r#"{"amount":5}"#),
        "{message}"
    );
    assert_eq!(service.runs(), 0);
    let accepted = answer("accept", &state);
    let done = service.call(CAROL, forms(), 5, accepted.clone()).await;
    assert_eq!(
        (text(&done), &done["result"]["isError"], service.runs()),
        ("paid 5", &json!(false), 1),
        "{done}"
    );
    let row = service.only_call().await;
    assert_eq!(
        [&row["state"], &row["decided_by"], &row["note"]],
        ["approved", "carol", "by phone"]
    );
    let again = service.call(CAROL, forms(), 5, accepted).await;
    assert_eq!(
        (text(&again), service.runs()),
        ("paid 5", 1),
        "the same answer"
    );
    service.only_call().await;
}

#[tokio::test]
async fn declined_form_denies_the_call() {
    let service = Service::new().await;
    let (_, state) = service.asked(5).await;
    let denied = service
        .call(CAROL, forms(), 5, answer("decline", &state))
        .await;
    assert_eq!(denied["result"]["isError"], true, "{denied}");
    let kind = &denied["result"]["_meta"]["toolcrib/problem"]["kind"];
    assert_eq!(kind, "approval_denied");
    service
        .call(CAROL, forms(), 5, answer("accept", &state))
        .await;
    assert_eq!(service.runs(), 0, "a later answer changes nothing");
    assert_eq!(service.only_call().await["state"], "denied");
}

#[tokio::test]
async fn closed_form_or_missing_answer_leaves_the_call_waiting() {
    let service = Service::new().await;
    let (question, state) = service.asked(5).await;
    let closed = service
        .call(CAROL, forms(), 5, answer("cancel", &state))
        .await;
    assert_eq!(
        (
            &closed["result"]["isError"],
            &closed["result"]["_meta"]["toolcrib/state"]
        ),
        (&json!(true), &json!("waiting")),
        "{closed}"
    );
    let missing = [
        json!({"requestState": state}),
        json!({"requestState": state, "inputResponses": {"other": {"action": "accept"}}}),
        json!({"requestState": state, "inputResponses": {"approval": {"action": "yes"}}}),
        json!({"requestState": state, "inputResponses": {"approval": true}}),
    ];
    for round in missing {
        let asked = service.call(CAROL, forms(), 5, round).await;
        assert_eq!(
            asked["result"]["inputRequests"]["approval"], question,
            "{asked}"
        );
    }
    let row = service.only_call().await;
    assert_eq!((&row["state"], service.runs()), (&json!("waiting"), 0));
    let done = service
        .call(CAROL, forms(), 5, answer("accept", &state))
        .await;
    assert_eq!((text(&done), service.runs()), ("paid 5", 1));
}

#[tokio::test]
async fn foreign_or_changed_state_never_approves() {
    let service = Service::new().await;
    let (_, state) = service.asked(5).await;
    let (_, other) = service.asked(7).await;
    let (id, rest) = state.split_once('.').unwrap();
    let other_id = other.split_once('.').unwrap().0;
    let (expires, tag) = rest.split_once('.').unwrap();
    let later = expires.parse::<i64>().unwrap() + 1;
    let changed = [
        format!("{other_id}.{rest}"),
        format!("{id}.{later}.{tag}"),
        format!("{id}.{expires}."),
        "nonsense".to_owned(),
        String::new(),
    ];
    for state in &changed {
        let refused = service
            .call(CAROL, forms(), 5, answer("accept", state))
            .await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    let wrong_arguments = service
        .call(CAROL, forms(), 6, answer("accept", &state))
        .await;
    assert_eq!(
        wrong_arguments["error"]["code"], -32602,
        "{wrong_arguments}"
    );
    for key in [DAVE, BOSS] {
        let refused = service
            .call(key, forms(), 5, answer("accept", &state))
            .await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    assert_eq!(service.runs(), 0);
    for id in [id, other_id] {
        assert_eq!(service.state_of(id).await, "waiting");
    }
}

#[tokio::test]
async fn callers_that_may_not_decide_get_words() {
    let service = Service::new().await;
    let clients = [
        (DAVE, forms()),
        (BOSS, forms()),
        (DAVE, urls()),
        (CAROL, json!({})),
    ];
    for (key, modes) in clients {
        let waiting = service.call(key, modes, 5, json!({})).await;
        assert_eq!(
            (
                &waiting["result"]["resultType"],
                &waiting["result"]["isError"],
                &waiting["result"]["_meta"]["toolcrib/state"]
            ),
            (&json!("complete"), &json!(true), &json!("waiting")),
            "{waiting}"
        );
    }
    assert_eq!(service.runs(), 0);
}

#[tokio::test]
async fn url_leads_another_person_to_the_call_and_decides_nothing() {
    let server = "server: {public_url: 'https://tools.test/crib'}\n";
    let service = Service::with(server, "wait: 20ms").await;
    let asked = service.call(DAVE, urls(), 5, json!({})).await;
    let result = &asked["result"];
    let id = result["_meta"]["toolcrib/invocationId"].as_str().unwrap();
    let params = &result["inputRequests"]["approval"]["params"];
    assert_eq!(
        (&params["mode"], params["url"].as_str().unwrap()),
        (
            &json!("url"),
            &*format!("https://tools.test/crib/#/approvals/{id}")
        ),
        "{asked}"
    );
    let state = result["requestState"].as_str().unwrap();
    let opened = answer("accept", state);
    let waiting = service.call(DAVE, urls(), 5, opened.clone()).await;
    assert_eq!(
        waiting["result"]["_meta"]["toolcrib/state"], "waiting",
        "{waiting}"
    );
    assert_eq!(service.runs(), 0);
    let approve = format!("/invocations/{id}/approve");
    service.app.post_as(BOSS, &approve, json!({})).await;
    loop {
        let done = service.call(DAVE, urls(), 5, opened.clone()).await;
        if done["result"]["isError"] == json!(false) {
            assert_eq!((text(&done), service.runs()), ("paid 5", 1));
            return;
        }
        assert_eq!(
            done["result"]["_meta"]["toolcrib/state"], "waiting",
            "{done}"
        );
    }
}

/// Calls in a session, answers the question with `action`, and returns the question and the result.
async fn in_session(service: &Service, key: &str, modes: Value, action: &str) -> (Value, Value) {
    let session = service.app.session_of("2025-11-25", Some(key), modes).await;
    let call = rpc_message(
        "tools/call",
        json!({"name": "pay", "arguments": {"amount": 5}}),
    );
    let mut body = session.post(&call).await.into_body();
    let question = next_message(&mut body).await.unwrap();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    assert_eq!(service.runs(), 0);
    let result = json!({"action": action, "content": {"note": "by phone"}});
    let response = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
    assert_eq!(session.post(&response).await.status(), 202);
    let result = next_message(&mut body).await.unwrap();
    (question, result)
}

#[tokio::test]
async fn session_asks_while_the_call_is_open() {
    let ends = [
        ("accept", false, "approved"),
        ("decline", true, "denied"),
        ("cancel", true, "waiting"),
    ];
    for (action, is_error, state) in ends {
        let service = Service::with("", "wait: 1h").await;
        let (question, done) = in_session(&service, CAROL, forms(), action).await;
        assert_eq!(question["params"]["mode"], "form", "{question}");
        assert_eq!(done["result"]["isError"], is_error, "{done}");
        let runs = usize::from(action == "accept");
        assert_eq!(
            (service.runs(), &service.only_call().await["state"]),
            (runs, &json!(state)),
            "{done}"
        );
    }
}

#[tokio::test]
async fn url_in_a_session_decides_nothing() {
    let server = "server: {public_url: 'https://tools.test'}\n";
    let service = Service::with(server, "wait: 200ms").await;
    let (question, done) = in_session(&service, DAVE, urls(), "accept").await;
    assert_eq!(question["params"]["mode"], "url", "{question}");
    assert_eq!(
        done["result"]["_meta"]["toolcrib/state"], "waiting",
        "{done}"
    );
    assert_eq!(service.runs(), 0);
}

#[tokio::test]
async fn session_without_forms_gets_words() {
    let service = Service::new().await;
    let clients = [(CAROL, json!({})), (DAVE, forms()), (CAROL, urls())];
    for (key, modes) in clients {
        let session = service.app.session_of("2025-11-25", Some(key), modes).await;
        let call = rpc_message(
            "tools/call",
            json!({"name": "pay", "arguments": {"amount": 5}}),
        );
        let (_, sent) = messages(session.post(&call).await).await;
        let [only] = &sent[..] else {
            panic!("{sent:?}");
        };
        assert_eq!(only["result"]["isError"], true, "{only}");
    }
    assert_eq!(service.runs(), 0);
}

#[tokio::test]
async fn decision_of_another_person_ends_an_open_form() {
    let service = Service::with("", "wait: 1h").await;
    let session = service
        .app
        .session_of("2025-11-25", Some(CAROL), forms())
        .await;
    let call = rpc_message(
        "tools/call",
        json!({"name": "pay", "arguments": {"amount": 5}}),
    );
    let mut body = session.post(&call).await.into_body();
    next_message(&mut body).await.unwrap();
    let id = service.only_call().await["invocation_id"].clone();
    let approve = format!("/invocations/{}/approve", id.as_str().unwrap());
    service.app.post_as(BOSS, &approve, json!({})).await;
    let done = next_message(&mut body).await.unwrap();
    assert_eq!((text(&done), service.runs()), ("paid 5", 1));
    assert!(body.frame().await.is_none_or(|frame| frame.is_ok()));
}
