use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use toolcrib::{Effect, Tool};

use crate::support::{TestApp, request};

const CALLERS: &str = "callers:
  - {name: agent, key: agent-key-0123456789}
  - {name: carol, key: carol-key-0123456789}
  - {name: boss, key: boss-key-012345678901, admin: true}
";
const AGENT: &str = "agent-key-0123456789";
const CAROL: &str = "carol-key-0123456789";
const BOSS: &str = "boss-key-012345678901";

/// The schema of `pay` with this default recipient.
fn schema(to: &str) -> Value {
    json!({"type": "object", "required": ["amount"], "properties": {
        "amount": {"type": "integer"}, "to": {"type": "string", "default": to}}})
}

/// A tool that counts its runs.
fn pay() -> (Tool, Arc<AtomicUsize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = runs.clone();
    let tool = Tool::new("pay", "Pays.")
        .effect(Effect::Write)
        .input_schema(schema("ann"))
        .call(move |arguments, _| {
            let count = count.clone();
            async move {
                count.fetch_add(1, Ordering::SeqCst);
                Ok(format!(
                    "paid {} to {}",
                    arguments["amount"], arguments["to"]
                ))
            }
        });
    (tool, runs)
}

fn manifest(policy: &str) -> String {
    format!("{CALLERS}tools:\n  pay: {{kind: native, {policy}}}\n")
}

const ASKS: &str =
    "approval: {when: args.amount > 100, by: [carol], wait: 20ms, expires: 1h, message: Check it.}";

struct Service {
    app: TestApp,
    runs: Arc<AtomicUsize>,
}

impl Service {
    async fn new(policy: &str) -> Self {
        let (tool, runs) = pay();
        let app = TestApp::with_manifest(&manifest(policy), [tool]).await;
        Self { app, runs }
    }

    async fn pay(&self, arguments: Value) -> (StatusCode, Value) {
        let body = json!({"arguments": arguments});
        self.app.post_as(AGENT, "/tools/pay/invoke", body).await
    }

    /// A call that waits. Returns its path.
    async fn waiting(&self, amount: u32) -> String {
        let (status, body) = self.pay(json!({"amount": amount})).await;
        assert_eq!(
            (status, &body["state"]),
            (StatusCode::ACCEPTED, &json!("waiting")),
            "{body}"
        );
        format!("/invocations/{}", body["invocation_id"].as_str().unwrap())
    }

    async fn decide(
        &self,
        key: &str,
        call: &str,
        verdict: &str,
        body: Value,
    ) -> (StatusCode, Value) {
        self.app
            .post_as(key, &format!("{call}/{verdict}"), body)
            .await
    }

    async fn ended(&self, call: &str) -> Value {
        loop {
            let (_, body) = self.app.get_as(BOSS, call).await;
            if !["waiting", "reserved", "running"].contains(&body["state"].as_str().unwrap()) {
                return body;
            }
            tokio::task::yield_now().await;
        }
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn call_waits_until_it_is_approved() {
    let service = Service::new(ASKS).await;
    assert_eq!(service.pay(json!({"amount": 5})).await.0, StatusCode::OK);
    let call = service.waiting(500).await;
    assert_eq!(service.runs(), 1);
    let (_, shown) = service.app.get_as(AGENT, &call).await;
    assert_eq!(
        (&shown["state"], &shown["approval"]["message"]),
        (&json!("waiting"), &json!("Check it."))
    );
    let (_, list) = service.app.get_as(CAROL, "/approvals?state=waiting").await;
    let waiting = &list["approvals"][0];
    assert_eq!(waiting["arguments"], json!({"amount": 500, "to": "ann"}));
    assert_eq!(
        (&waiting["can_decide"], &waiting["caller"]),
        (&json!(true), &json!("agent"))
    );
    let (_, calls) = service
        .app
        .get_as(AGENT, "/invocations?state=waiting")
        .await;
    assert_eq!(
        calls["invocations"][0]["invocation_id"],
        waiting["invocation_id"]
    );
    let (status, _) = service
        .decide(CAROL, &call, "approve", json!({"note": "fine"}))
        .await;
    assert_eq!(status, StatusCode::OK);
    let row = service.ended(&call).await;
    assert_eq!((&row["state"], service.runs()), (&json!("succeeded"), 2));
    assert_eq!(
        [
            &row["approval"]["state"],
            &row["approval"]["decided_by"],
            &row["approval"]["note"]
        ],
        ["approved", "carol", "fine"]
    );
}

#[tokio::test]
async fn second_decision_is_refused_and_runs_nothing() {
    let service = Service::new(ASKS).await;
    let call = service.waiting(500).await;
    service.decide(CAROL, &call, "approve", json!({})).await;
    for verdict in ["approve", "deny"] {
        let (status, body) = service.decide(BOSS, &call, verdict, json!({})).await;
        assert_eq!(status, StatusCode::CONFLICT, "{body}");
    }
    service.ended(&call).await;
    assert_eq!(service.runs(), 1);
}

/// Many clients send the type of a body that they do not have.
#[tokio::test]
async fn decision_needs_no_body() {
    let service = Service::new(ASKS).await;
    let call = service.waiting(500).await;
    let mut deny = request("POST", &format!("{call}/deny"), Some(CAROL), None);
    let json = "application/json".parse().unwrap();
    deny.headers_mut().insert("content-type", json);
    let (status, body) = service.app.send(deny).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(body["state"], "refused");
}

#[tokio::test]
async fn denied_call_ends_with_the_note() {
    let service = Service::new(ASKS).await;
    let call = service.waiting(500).await;
    let (_, body) = service
        .decide(CAROL, &call, "deny", json!({"note": "wrong account"}))
        .await;
    assert_eq!(
        [&body["state"], &body["kind"], &body["approval"]["state"]],
        ["refused", "approval_denied", "denied"]
    );
    let text = body["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("wrong account"), "{text}");
    assert_eq!(
        (service.runs(), &body["result"]["status"]),
        (0, &json!(403))
    );
}

#[tokio::test]
async fn only_admins_and_named_callers_decide_and_never_about_their_own_calls() {
    let service = Service::new("approval: {wait: 20ms}").await;
    let call = service.waiting(1).await;
    for key in [AGENT, CAROL] {
        let (status, _) = service.decide(key, &call, "approve", json!({})).await;
        let expected = if key == AGENT {
            StatusCode::FORBIDDEN
        } else {
            StatusCode::NOT_FOUND
        };
        assert_eq!(status, expected);
    }
    let body = json!({"arguments": {"amount": 2}});
    let (_, own) = service.app.post_as(BOSS, "/tools/pay/invoke", body).await;
    let own = format!("/invocations/{}", own["invocation_id"].as_str().unwrap());
    assert_eq!(
        service.decide(BOSS, &own, "approve", json!({})).await.0,
        StatusCode::FORBIDDEN
    );
    assert_eq!(
        service.decide(BOSS, &call, "approve", json!({})).await.0,
        StatusCode::OK
    );
}

#[tokio::test]
async fn changed_arguments_are_validated_and_recorded_beside_the_original() {
    let service = Service::new(ASKS).await;
    let call = service.waiting(500).await;
    let wrong = json!({"arguments": {"amount": "much"}});
    let (status, _) = service.decide(CAROL, &call, "approve", wrong).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let changed = json!({"arguments": {"amount": 200}});
    assert_eq!(
        service.decide(CAROL, &call, "approve", changed).await.0,
        StatusCode::OK
    );
    let row = service.ended(&call).await;
    assert_eq!(row["result"]["content"][0]["text"], r#"paid 200 to "ann""#);
    assert_eq!(row["approval"]["original_arguments"]["amount"], 500);
}

#[tokio::test]
async fn waiting_call_survives_a_restart_and_runs_once() {
    let service = Service::new(ASKS).await;
    let call = service.waiting(500).await;
    let (tool, runs) = pay();
    let app = service.app.restart([tool]).await;
    let service = Service { app, runs };
    assert_eq!(service.app.get_as(AGENT, &call).await.1["state"], "waiting");
    assert_eq!(
        service.decide(CAROL, &call, "approve", json!({})).await.0,
        StatusCode::OK
    );
    assert_eq!(service.ended(&call).await["state"], "succeeded");
    assert_eq!(service.runs(), 1);
}

#[tokio::test]
async fn approval_is_void_if_the_tool_has_changed() {
    let service = Service::new(ASKS).await;
    let call = service.waiting(500).await;
    let tool = pay().0.input_schema(schema("bob"));
    let app = service.app.restart([tool]).await;
    let service = Service {
        app,
        runs: service.runs,
    };
    service.decide(CAROL, &call, "approve", json!({})).await;
    let row = service.ended(&call).await;
    assert_eq!(row["kind"], "approval_expired");
    assert_eq!(row["detail"], "the tool has changed since the approval");
}

#[tokio::test]
async fn key_of_a_waiting_call_is_in_progress_and_free_after_a_denial() {
    let service = Service::new(ASKS).await;
    let pay = async |amount: u32| {
        let body = json!({"arguments": {"amount": amount}});
        let mut request = request("POST", "/tools/pay/invoke", Some(AGENT), Some(body));
        let headers = request.headers_mut();
        headers.insert("idempotency-key", "k".parse().unwrap());
        service.app.send(request).await
    };
    let (status, body) = pay(500).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    for amount in [500, 5] {
        let (status, body) = pay(amount).await;
        assert_eq!(
            (status, &body["kind"]),
            (StatusCode::CONFLICT, &json!("idempotency_in_progress"))
        );
    }
    let call = format!("/invocations/{}", body["invocation_id"].as_str().unwrap());
    service.decide(CAROL, &call, "deny", json!({})).await;
    service.ended(&call).await;
    assert_eq!(pay(500).await.0, StatusCode::ACCEPTED, "the key is free");
}

#[tokio::test]
async fn key_of_a_waiting_call_is_held_for_its_caller_and_tool_only() {
    let others: String = (0..9)
        .map(|n| format!("  - {{name: other{n}, key: other-key-{n}-0123456789}}\n"))
        .collect();
    let tools =
        format!("tools:\n  pay: {{kind: native, {ASKS}}}\n  refund: {{kind: native, {ASKS}}}\n");
    let refund = Tool::new("refund", "Pays back.")
        .effect(Effect::Write)
        .input_schema(schema("ann"))
        .call(|_, _| async { Ok("paid back") });
    let manifest = format!("{CALLERS}{others}{tools}");
    let app = TestApp::with_manifest(&manifest, [pay().0, refund]).await;
    let invoke = async |caller: &str, tool: &str, amount: u32, key: &str| {
        let body = json!({"arguments": {"amount": amount}});
        let path = format!("/tools/{tool}/invoke");
        let mut request = request("POST", &path, Some(caller), Some(body));
        let headers = request.headers_mut();
        headers.insert("idempotency-key", key.parse().unwrap());
        app.send(request).await.0
    };
    assert_eq!(invoke(AGENT, "pay", 500, "k").await, StatusCode::ACCEPTED);
    // Newer calls of others with the same key wait too.
    for number in 0..9 {
        let other = format!("other-key-{number}-0123456789");
        assert_eq!(invoke(&other, "pay", 500, "k").await, StatusCode::ACCEPTED);
    }
    assert_eq!(invoke(AGENT, "pay", 5, "k").await, StatusCode::CONFLICT);
    assert_eq!(invoke(AGENT, "pay", 5, "another").await, StatusCode::OK);
    assert_eq!(invoke(AGENT, "refund", 5, "k").await, StatusCode::OK);
    // The calls that she may decide are not hers.
    assert_eq!(invoke(CAROL, "pay", 5, "k").await, StatusCode::OK);
}

#[tokio::test]
async fn cancelled_call_cannot_be_approved() {
    let service = Service::new(ASKS).await;
    let call = service.waiting(500).await;
    let (status, body) = service.app.delete_as(AGENT, &call).await;
    assert_eq!(
        (status, &body["state"]),
        (StatusCode::OK, &json!("cancelled")),
        "{body}"
    );
    assert_eq!(
        service.decide(CAROL, &call, "approve", json!({})).await.0,
        StatusCode::CONFLICT
    );
    assert_eq!(service.runs(), 0);
}

#[tokio::test]
async fn limits_are_judged_when_the_call_starts() {
    let service = Service::new("limits: {calls: 1, per: day}, approval: {when: args.amount > 100, by: [carol], wait: 20ms}").await;
    let call = service.waiting(500).await;
    assert_eq!(
        service.pay(json!({"amount": 5})).await.0,
        StatusCode::OK,
        "waiting takes no unit"
    );
    service.decide(CAROL, &call, "approve", json!({})).await;
    assert_eq!(service.ended(&call).await["kind"], "usage_limit_reached");
}

#[tokio::test]
async fn request_that_waits_gets_the_result() {
    let policy = "approval: {by: [carol], wait: 1h}";
    let service = Arc::new(Service::new(policy).await);
    let call = tokio::spawn({
        let service = service.clone();
        async move { service.pay(json!({"amount": 7})).await }
    });
    let waiting = loop {
        let (_, list) = service.app.get_as(CAROL, "/approvals?state=waiting").await;
        if let Some(id) = list["approvals"][0]["invocation_id"].as_str() {
            break format!("/invocations/{id}");
        }
        tokio::task::yield_now().await;
    };
    service.decide(CAROL, &waiting, "approve", json!({})).await;
    let (status, body) = call.await.unwrap();
    assert_eq!((status, &body["is_error"]), (StatusCode::OK, &json!(false)));
}

#[tokio::test]
async fn caller_that_leaves_withdraws_its_call() {
    let service = Arc::new(Service::new("approval: {by: [carol], wait: 1h}").await);
    let call = tokio::spawn({
        let service = service.clone();
        async move { service.pay(json!({"amount": 7})).await }
    });
    let approval = async || service.app.get_as(CAROL, "/approvals").await.1["approvals"][0].clone();
    while approval().await["state"] != "waiting" {
        tokio::task::yield_now().await;
    }
    call.abort();
    while approval().await["state"] != "withdrawn" {
        tokio::task::yield_now().await;
    }
    let call = format!(
        "/invocations/{}",
        approval().await["invocation_id"].as_str().unwrap()
    );
    assert_eq!(service.ended(&call).await["state"], "cancelled");
    assert_eq!(service.runs(), 0);
}

#[tokio::test]
async fn rule_denies_a_call_with_its_text() {
    let rule = "deny_when: [{when: args.amount > 10000, say: Too much.}, {when: args.nothing == 1, say: Always.}]";
    for approval in ["", ", approval: true"] {
        let service = Service::new(&format!("{rule}{approval}")).await;
        for (amount, say) in [(20000, "Too much."), (5, "Always.")] {
            let (status, body) = service.pay(json!({"amount": amount})).await;
            assert_eq!(
                (status, &body["kind"]),
                (StatusCode::FORBIDDEN, &json!("forbidden"))
            );
            assert_eq!(body["content"][0]["text"], say);
        }
        assert_eq!(service.runs(), 0);
    }
}

#[tokio::test]
async fn arguments_that_must_not_be_stored_wait_in_memory() {
    let service = Service::new(&format!("capture: digest, {ASKS}")).await;
    let call = service.waiting(500).await;
    let (_, list) = service.app.get_as(CAROL, "/approvals").await;
    assert_eq!(list["approvals"][0]["arguments"]["amount"], 500);
    service.decide(CAROL, &call, "approve", json!({})).await;
    assert_eq!(service.ended(&call).await["state"], "succeeded");
    // The memory is free shortly after the row of the call has ended.
    let shown = async || {
        let (_, list) = service.app.get_as(CAROL, "/approvals").await;
        list["approvals"][0]["arguments"].clone()
    };
    while shown().await != Value::Null {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn person_sees_the_context_of_the_caller() {
    for policy in [ASKS.to_owned(), format!("capture: digest, {ASKS}")] {
        let service = Service::new(&policy).await;
        let context = json!({"tenant": "acme"});
        let body = json!({"arguments": {"amount": 500}, "context": context.clone()});
        service.app.post_as(AGENT, "/tools/pay/invoke", body).await;
        service.waiting(600).await;
        let (_, list) = service.app.get_as(CAROL, "/approvals").await;
        assert_eq!(list["approvals"][0]["context"], Value::Null, "{policy}");
        assert_eq!(list["approvals"][1]["context"], context, "{policy}");
    }
}

#[tokio::test]
async fn message_is_answered_that_a_call_waits() {
    let service = Service::new(ASKS).await;
    let message = json!({"role": "assistant", "tool_calls": [{"id": "c1", "type": "function",
        "function": {"name": "pay", "arguments": "{\"amount\": 500}"}}]});
    let (_, body) = service.app.post_as(AGENT, "/calls", message).await;
    let result = &body["results"][0];
    assert_eq!(
        (
            &result["state"],
            &result["is_error"],
            &result["tool_use_id"]
        ),
        (&json!("waiting"), &json!(false), &json!("c1"))
    );
    assert!(
        body["messages"][0]["content"]
            .as_str()
            .unwrap()
            .contains("a person must approve")
    );
}

#[tokio::test]
async fn call_waits_no_longer_than_its_own_timeout() {
    let service = Service::new("approval: {by: [carol], wait: 1h}").await;
    let body = json!({"arguments": {"amount": 7}, "timeout": "50ms"});
    let call = service.app.post_as(AGENT, "/tools/pay/invoke", body);
    let (status, _) = tokio::time::timeout(Duration::from_secs(60), call)
        .await
        .unwrap();
    assert_eq!(status, StatusCode::ACCEPTED);
}

/// A request for a stream of events, read to its end.
async fn stream(app: &TestApp, arguments: Value) -> String {
    let body = json!({"arguments": arguments});
    let mut request = request("POST", "/tools/pay/invoke", Some(AGENT), Some(body));
    let accept = "text/event-stream".parse().unwrap();
    request.headers_mut().insert("accept", accept);
    let body = app.respond(request).await.into_body();
    let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    String::from_utf8(bytes.into()).unwrap()
}

/// The path of the call that waits.
async fn waiting_call(app: &TestApp) -> String {
    loop {
        let (_, list) = app.get_as(BOSS, "/approvals?state=waiting").await;
        if let Some(id) = list["approvals"][0]["invocation_id"].as_str() {
            return format!("/invocations/{id}");
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn followed_call_starts_with_the_rights_of_its_start() {
    let service = Service::new("approval: true").await;
    let decide = async {
        let call = waiting_call(&service.app).await;
        let denied =
            manifest("approval: true").replace("{name: agent, ", "{name: agent, deny: [pay], ");
        service.app.write("toolcrib.yaml", &denied);
        assert_eq!(service.app.reload().await, None);
        let (status, _) = service.decide(BOSS, &call, "approve", json!({})).await;
        assert_eq!(status, StatusCode::OK);
    };
    let (events, ()) = tokio::join!(stream(&service.app, json!({"amount": 1})), decide);
    assert!(events.contains(r#""kind":"forbidden""#), "{events}");
    assert_eq!(service.runs(), 0);
}

#[tokio::test]
async fn caller_that_the_policy_no_longer_names_decides_nothing() {
    let service = Service::new(ASKS).await;
    let call = service.waiting(500).await;
    let policy = ASKS.replace("by: [carol], ", "");
    service.app.write("toolcrib.yaml", &manifest(&policy));
    assert_eq!(service.app.reload().await, None);
    let (status, _) = service.decide(CAROL, &call, "approve", json!({})).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert_eq!(service.runs(), 0);
}
