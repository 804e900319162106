//! Questions of running tools, over REST, events and MCP.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use toolcrib::{Effect, Tool};

use crate::support::TestApp;
use crate::support::mcp::{last_message, merge, modern_request, next_message, rpc_message};

const CAROL: &str = "carol-key-0123456789";
const DAVE: &str = "dave-key-01234567890";

/// A service with a tool that asks for a room, and then for a confirmation.
async fn service() -> TestApp {
    service_with("").await
}

async fn service_with(policy: &str) -> TestApp {
    let manifest = format!(
        "callers:
  - {{name: carol, key: {CAROL}}}
  - {{name: dave, key: {DAVE}}}
tools:
  book: {{kind: native{policy}}}
"
    );
    let room = json!({"type": "object", "properties": {"room": {"type": "integer", "minimum": 1}}, "required": ["room"]});
    let tool = Tool::new("book", "Books a room.")
        .effect(Effect::Read)
        .call(move |_, context| {
            let room = room.clone();
            async move {
                let asked = context.ask("Which room?", Some(room), Some("room")).await;
                let sure = match &asked {
                    Ok(_) => Some(context.ask("Sure?", None, Some("sure")).await),
                    Err(_) => None,
                };
                let text = |answer: &Result<_, toolcrib::call::AskError>| match answer {
                    Ok(answer) => json!(answer).to_string(),
                    Err(error) => error.to_string(),
                };
                Ok(format!(
                    "{} {}",
                    text(&asked),
                    sure.as_ref().map(text).unwrap_or_default()
                ))
            }
        });
    TestApp::with_manifest(&manifest, [tool]).await
}

/// Makes a call as CAROL, and returns its id after the first question.
async fn asked(app: &TestApp) -> String {
    let (status, body) = app
        .post_as(CAROL, "/tools/book/invoke", json!({"arguments": {}}))
        .await;
    assert_eq!(status, StatusCode::ACCEPTED, "{body}");
    assert_eq!(
        (
            &body["state"],
            &body["question"]["name"],
            &body["question"]["message"]
        ),
        (&json!("waiting"), &json!("room"), &json!("Which room?"))
    );
    let text = body["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("Which room?") && text.contains("/answer"),
        "{text}"
    );
    body["invocation_id"].as_str().unwrap().to_owned()
}

async fn answer(app: &TestApp, key: &str, id: &str, body: Value) -> (StatusCode, Value) {
    app.post_as(key, &format!("/invocations/{id}/answer"), body)
        .await
}

/// Reads a call until it is as wanted.
async fn wait_for(app: &TestApp, id: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let (_, call) = app.get_as(CAROL, &format!("/invocations/{id}")).await;
        if is_wanted(&call) {
            return call;
        }
        tokio::task::yield_now().await;
    }
}

fn asks(name: &str) -> impl Fn(&Value) -> bool {
    move |call| call["question"]["name"] == name
}

fn room(number: u32) -> Value {
    json!({"action": "accept", "content": {"room": number}})
}

#[tokio::test]
async fn plain_request_gets_the_question_and_the_answer_lets_the_tool_go_on() {
    let app = service().await;
    let id = asked(&app).await;
    let call = wait_for(&app, &id, asks("room")).await;
    assert_eq!(
        (&call["state"], &call["result"]),
        (&json!("waiting"), &Value::Null)
    );
    let (_, list) = app.get_as(CAROL, "/invocations?state=waiting").await;
    assert_eq!(list["invocations"][0]["invocation_id"], *id, "{list}");
    assert_eq!(answer(&app, CAROL, &id, room(7)).await.0, StatusCode::OK);
    wait_for(&app, &id, asks("sure")).await;
    let declined = json!({"action": "decline", "question": "sure"});
    assert_eq!(answer(&app, CAROL, &id, declined).await.0, StatusCode::OK);
    let call = wait_for(&app, &id, |call| call["state"] == "succeeded").await;
    let text = call["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains(r#""room":7"#) && text.ends_with(r#"{"action":"decline"}"#),
        "{text}"
    );
    assert_eq!(call.get("question"), None);
}

#[tokio::test]
async fn wrong_answers_leave_the_question_open() {
    let app = service().await;
    let id = asked(&app).await;
    let wrong = [
        (CAROL, room(0), StatusCode::UNPROCESSABLE_ENTITY),
        (
            CAROL,
            json!({"action": "accept"}),
            StatusCode::UNPROCESSABLE_ENTITY,
        ),
        (CAROL, json!({"action": "yes"}), StatusCode::BAD_REQUEST),
        (
            CAROL,
            json!({"action": "decline", "content": {}}),
            StatusCode::BAD_REQUEST,
        ),
        (
            CAROL,
            json!({"action": "cancel", "question": "sure"}),
            StatusCode::CONFLICT,
        ),
        (DAVE, room(7), StatusCode::NOT_FOUND),
    ];
    for (key, body, expected) in wrong {
        let (status, problem) = answer(&app, key, &id, body).await;
        assert_eq!(status, expected, "{problem}");
    }
    wait_for(&app, &id, asks("room")).await;
    let nobody = "00000000-0000-7000-8000-000000000000";
    assert_eq!(
        answer(&app, CAROL, nobody, room(1)).await.0,
        StatusCode::NOT_FOUND
    );
    assert_eq!(answer(&app, CAROL, &id, room(1)).await.0, StatusCode::OK);
    wait_for(&app, &id, asks("sure")).await;
    let (status, problem) = answer(
        &app,
        CAROL,
        &id,
        json!({"action": "cancel", "question": "room"}),
    )
    .await;
    assert_eq!(status, StatusCode::CONFLICT, "a second click: {problem}");
    assert_eq!(
        answer(&app, CAROL, &id, json!({"action": "cancel"}))
            .await
            .0,
        StatusCode::OK
    );
    wait_for(&app, &id, |call| call["state"] == "succeeded").await;
    assert_eq!(
        answer(&app, CAROL, &id, room(1)).await.0,
        StatusCode::CONFLICT
    );
}

#[tokio::test]
async fn stream_has_each_question_as_an_event() {
    let app = service().await;
    let request = Request::builder()
        .method(Method::POST)
        .uri("/tools/book/invoke")
        .header("host", "localhost")
        .header("authorization", format!("Bearer {CAROL}"))
        .header("accept", "text/event-stream")
        .header("content-type", "application/json")
        .body(Body::from(json!({"arguments": {}}).to_string()))
        .unwrap();
    let mut body = app.respond(request).await.into_body();
    let mut next = async || {
        let frame = body.frame().await.unwrap().unwrap();
        let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
        let (event, data) = text.trim_end().split_once("\ndata: ").expect(&text);
        (
            event.to_owned(),
            serde_json::from_str::<Value>(data).unwrap(),
        )
    };
    let (event, data) = next().await;
    assert_eq!(
        (&*event, &data["question"]["name"]),
        ("event: waiting", &json!("room"))
    );
    let id = data["invocation_id"].as_str().unwrap().to_owned();
    assert_eq!(answer(&app, CAROL, &id, room(3)).await.0, StatusCode::OK);
    let (event, data) = next().await;
    assert_eq!(
        (&*event, &data["question"]["name"]),
        ("event: waiting", &json!("sure"))
    );
    answer(&app, CAROL, &id, json!({"action": "accept"})).await;
    let (event, data) = next().await;
    assert_eq!(
        (&*event, &data["is_error"]),
        ("event: result", &json!(false)),
        "{data}"
    );
}

#[tokio::test]
async fn result_of_answers_is_not_cached_or_shared() {
    let app = service_with(", context: [tenant], cache: {ttl: 1h, scope: shared}").await;
    for _ in 0..2 {
        let id = asked(&app).await;
        answer(&app, CAROL, &id, json!({"action": "decline"})).await;
        wait_for(&app, &id, asks("sure")).await;
        answer(&app, CAROL, &id, json!({"action": "decline"})).await;
        let call = wait_for(&app, &id, |call| call["state"] == "succeeded").await;
        assert_eq!(call["cache"], "miss");
    }
}

#[tokio::test]
async fn unanswered_question_ends_with_the_timeout() {
    let app = service_with(", timeout: 40ms").await;
    let id = asked(&app).await;
    let call = wait_for(&app, &id, |call| call["state"] != "waiting").await;
    assert_eq!(
        (&call["state"], call.get("question")),
        (&json!("timed_out"), None)
    );
}

#[tokio::test]
async fn cancelled_call_takes_its_question_back() {
    let app = service().await;
    let id = asked(&app).await;
    let (status, _) = app.delete_as(CAROL, &format!("/invocations/{id}")).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        answer(&app, CAROL, &id, room(1)).await.0,
        StatusCode::CONFLICT
    );
}

#[tokio::test]
async fn calls_that_nobody_can_answer_are_not_asked() {
    let app = service().await;
    let message = json!({"choices": [{"message": {"tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "book", "arguments": "{}"}}
    ]}}]});
    let (status, body) = app.post_as(CAROL, "/calls", message).await;
    assert_eq!(status, StatusCode::OK);
    assert!(body.to_string().contains("cannot be asked"), "{body}");
    let digest = service_with(", capture: digest").await;
    let (status, body) = digest
        .post_as(CAROL, "/tools/book/invoke", json!({"arguments": {}}))
        .await;
    assert_eq!(status, StatusCode::OK, "the result could not be read later");
    assert!(body.to_string().contains("cannot be asked"), "{body}");
}

fn forms() -> Value {
    json!({"elicitation": {}})
}

/// A call of 2026-07-28.
async fn mcp_call(app: &TestApp, key: &str, capabilities: Value, round: Value) -> Value {
    let meta = json!({"io.modelcontextprotocol/clientCapabilities": capabilities});
    let params = json!({"name": "book", "arguments": {}, "_meta": meta});
    let request = modern_request("tools/call", merge(params, round), Some(key));
    last_message(app.respond(request).await).await.1
}

fn state(answer: &Value) -> &str {
    assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
    answer["result"]["requestState"].as_str().unwrap()
}

#[tokio::test]
async fn mcp_client_answers_in_rounds() {
    let app = service().await;
    let first = mcp_call(&app, CAROL, forms(), json!({})).await;
    let form = &first["result"]["inputRequests"]["room"];
    assert_eq!(
        (&form["method"], &form["params"]["message"]),
        (&json!("elicitation/create"), &json!("Which room?")),
        "{first}"
    );
    let state_1 = state(&first).to_owned();
    for round in [
        json!({"requestState": state_1}),
        json!({"requestState": state_1, "inputResponses": {"room": room(0)}}),
        json!({"requestState": state_1, "inputResponses": {"room": 5}}),
    ] {
        let again = mcp_call(&app, CAROL, forms(), round).await;
        assert_eq!(again["result"]["inputRequests"]["room"], *form, "{again}");
    }
    let round = json!({"requestState": state_1, "inputResponses": {"room": room(4)}});
    let second = mcp_call(&app, CAROL, forms(), round.clone()).await;
    let state_2 = state(&second).to_owned();
    assert_ne!(state_1, state_2);
    assert_eq!(
        second["result"]["inputRequests"]["sure"]["params"]["message"],
        "Sure?"
    );
    let lost = mcp_call(&app, CAROL, forms(), round).await;
    let question = |state: &str| state.rsplitn(3, '.').last().map(str::to_owned);
    assert_eq!(
        question(state(&lost)),
        question(&state_2),
        "an answer counts once: {lost}"
    );
    let round = json!({"requestState": state_2, "inputResponses": {"sure": {"action": "accept"}}});
    let done = mcp_call(&app, CAROL, forms(), round.clone()).await;
    let text = done["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains(r#""room":4"#), "{done}");
    let again = mcp_call(&app, CAROL, forms(), round).await;
    assert_eq!(
        again["result"]["content"], done["result"]["content"],
        "{again}"
    );
}

#[tokio::test]
async fn mcp_client_may_bring_its_answers() {
    let app = service().await;
    let answers =
        json!({"inputResponses": {"room": room(9), "sure": {"action": "accept"}, "other": 1}});
    let done = mcp_call(&app, CAROL, forms(), answers).await;
    let text = done["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains(r#""room":9"#), "{done}");
}

#[tokio::test]
async fn foreign_or_changed_state_answers_nothing() {
    let app = service().await;
    let first = mcp_call(&app, CAROL, forms(), json!({})).await;
    let state = state(&first);
    let id = first["result"]["_meta"]["toolcrib/invocationId"]
        .as_str()
        .unwrap();
    let other_round = state.replacen("q1.", "q2.", 1);
    let tries = [
        (DAVE, state.to_owned()),
        (CAROL, format!("{state}0")),
        (CAROL, other_round),
        (CAROL, "q".to_owned()),
    ];
    for (key, state) in tries {
        let round = json!({"requestState": state, "inputResponses": {"room": room(1)}});
        let refused = mcp_call(&app, key, forms(), round).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    wait_for(&app, id, asks("room")).await;
}

#[tokio::test]
async fn mcp_client_without_forms_is_not_asked() {
    let app = service().await;
    let done = mcp_call(&app, CAROL, json!({}), json!({})).await;
    assert!(done.to_string().contains("cannot be asked"), "{done}");
}

#[tokio::test]
async fn session_is_asked_while_its_call_is_open() {
    let app = service().await;
    for action in ["accept", "decline"] {
        let session = app.session_of("2025-11-25", Some(CAROL), forms()).await;
        let call = rpc_message("tools/call", json!({"name": "book", "arguments": {}}));
        let mut body = session.post(&call).await.into_body();
        for message in ["Which room?", "Sure?"] {
            let form = next_message(&mut body).await.unwrap();
            assert_eq!(form["params"]["message"], message, "{form}");
            let result = merge(
                json!({"action": action}),
                match action {
                    "accept" if message == "Which room?" => json!({"content": {"room": 2}}),
                    _ => json!({}),
                },
            );
            let response = json!({"jsonrpc": "2.0", "id": form["id"], "result": result});
            assert_eq!(session.post(&response).await.status(), 202);
        }
        let done = tokio::time::timeout(Duration::from_secs(60), next_message(&mut body)).await;
        let done = done.unwrap().unwrap();
        let text = done["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(action), "{done}");
    }
}
