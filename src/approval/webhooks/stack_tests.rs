//! Tests of the webhooks about waiting calls, with a receiver in this process.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;
use crate::access::public_url::PublicUrl;
use crate::access::webhook_secret::WebhookSecret;
use crate::approval::deciding::{Decision, Verdict};
use crate::approval::receivers::{ApprovalNotices, Receiver};
use crate::approval::webhooks::send_approval_webhooks;
use crate::call::{ApprovalPolicy, InvocationId};
use crate::ledger::{ApprovalRow, ApprovalState};
use crate::log::captured_log::capture_log;
use crate::metrics::ServiceState;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A webhook that arrived: its headers and its body.
type Webhook = (HeaderMap, String);

/// A receiver of webhooks that answers with these statuses, the last of them again and again.
/// Without one, it does not answer.
struct Answering {
    port: u16,
    arrived: mpsc::Receiver<Webhook>,
    statuses: Arc<Mutex<Vec<StatusCode>>>,
}

type ReceiverState = (mpsc::Sender<Webhook>, Arc<Mutex<Vec<StatusCode>>>);

async fn answer(
    Shared((arrivals, statuses)): Shared<ReceiverState>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let body = String::from_utf8(body.into()).unwrap();
    let _ = arrivals.try_send((headers, body));
    let status = {
        let mut statuses = statuses.lock();
        match statuses.len() {
            0 => None,
            1 => Some(statuses[0]),
            _ => Some(statuses.remove(0)),
        }
    };
    match status {
        Some(status) => status,
        None => std::future::pending().await,
    }
}

impl Answering {
    async fn with(statuses: &[StatusCode]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (arrivals, arrived) = mpsc::channel(1000);
        let statuses = Arc::new(Mutex::new(statuses.to_vec()));
        let service = Router::new()
            .fallback(answer)
            .with_state((arrivals, statuses.clone()));
        tokio::spawn(async move { axum::serve(listener, service).await });
        Self {
            port,
            arrived,
            statuses,
        }
    }

    fn notices(&self) -> Arc<ApprovalNotices> {
        notices(self.port)
    }

    async fn next(&mut self) -> Webhook {
        self.arrived.recv().await.unwrap()
    }

    /// The next webhook, which is sent after a pause.
    async fn next_retry(&mut self) -> Webhook {
        loop {
            let arrived = tokio::time::timeout(SECOND / 50, self.arrived.recv()).await;
            if let Ok(arrived) = arrived {
                return arrived.unwrap();
            }
            pass(SECOND).await;
        }
    }

    /// The call of the next webhook.
    async fn next_call(&mut self) -> String {
        let (headers, _) = self.next().await;
        headers["webhook-id"].to_str().unwrap().into()
    }
}

fn notices(port: u16) -> Arc<ApprovalNotices> {
    Arc::new(ApprovalNotices {
        public_url: PublicUrl::parse("https://tools.test/crib").unwrap(),
        receivers: vec![Receiver {
            name: "chat".into(),
            url: format!("http://127.0.0.1:{port}/hook-token")
                .parse()
                .unwrap(),
            secret: WebhookSecret::parse(SECRET).unwrap(),
        }],
    })
}

/// Lets time pass. It does not pass by itself meanwhile, as with a paused clock it would, because
/// the requests are real.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

fn service() -> (Arc<Registry>, Arc<MemoryLedger>) {
    let mut tool = Tool::new("pay", "Pays.")
        .effect(Effect::Write)
        .call(|_, _| async { Ok("paid") });
    tool.policy.approval = Some(ApprovalPolicy {
        wait: Duration::ZERO,
        message: Some("Check it.".into()),
        ..ApprovalPolicy::default()
    });
    let ledger = Arc::new(MemoryLedger::default());
    let registry = registry_over([tool], 1000, |shared| SharedParts {
        ledger: ledger.clone(),
        ..shared
    });
    (registry, ledger)
}

async fn waiting_call(registry: &Registry) -> InvocationId {
    let answer = call(registry, "pay", None).await.unwrap();
    assert!(answer.waiting);
    answer.invocation
}

async fn is_notified(ledger: &MemoryLedger, id: InvocationId) -> bool {
    ledger.find_approval(id).await.unwrap().unwrap().notified
}

async fn wait_until_notified(ledger: &MemoryLedger, id: InvocationId) {
    while !is_notified(ledger, id).await {
        tokio::task::yield_now().await;
    }
}

/// Lets time pass until the receivers know of a call.
async fn pass_until_notified(ledger: &MemoryLedger, id: InvocationId) {
    while !is_notified(ledger, id).await {
        pass(SECOND).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn receiver_gets_a_signed_webhook_about_a_waiting_call() {
    let (registry, ledger) = service();
    let id = waiting_call(&registry).await;
    let row = ledger.find_approval(id).await.unwrap().unwrap();
    let mut receiver = Answering::with(&[StatusCode::NO_CONTENT]).await;
    tokio::spawn(send_approval_webhooks(registry.clone(), receiver.notices()));
    let (headers, body) = receiver.next().await;
    let header = |name: &str| headers[name].to_str().unwrap();
    let secret = WebhookSecret::parse(SECRET).unwrap();
    let message = format!("msg_{id}");
    assert_eq!(header("webhook-id"), message);
    assert_eq!(header("webhook-timestamp"), "0");
    assert_eq!(header("webhook-signature"), secret.sign(&message, 0, &body));
    assert_eq!(header("content-type"), "application/json");
    let webhook: Value = serde_json::from_str(&body).unwrap();
    let token = secret.link_token("chat", id);
    let expected = json!({
        "type": "approval.waiting",
        "timestamp": "1970-01-01T00:00:00Z",
        "data": {
            "invocation_id": id,
            "tool": "pay",
            "caller": Caller::ANONYMOUS,
            "run_id": null,
            "tool_use_id": null,
            "effect": "write",
            "arguments": {},
            "message": "Check it.",
            "requested_at": "1970-01-01T00:00:00Z",
            "expires_at": row.expires_at,
            "link": format!("https://tools.test/crib/approvals/{id}/decide?link=chat&token={token}"),
        },
    });
    assert_eq!(webhook, expected);
    wait_until_notified(&ledger, id).await;
    // It gets no second webhook for this call, but one for the next call.
    for _ in 0..9 {
        pass(SECOND).await;
    }
    let next = waiting_call(&registry).await;
    assert_eq!(receiver.next_call().await, format!("msg_{next}"));
}

#[tokio::test]
async fn webhook_that_fails_is_sent_again_as_long_as_the_call_waits() {
    let log = capture_log();
    let (registry, ledger) = service();
    let (first, second) = (waiting_call(&registry).await, waiting_call(&registry).await);
    let failing = StatusCode::INTERNAL_SERVER_ERROR;
    let mut receiver = Answering::with(&[failing]).await;
    tokio::spawn(send_approval_webhooks(registry.clone(), receiver.notices()));
    for _ in 0..2 {
        receiver.next().await;
    }
    for _ in 0..2 {
        receiver.next_retry().await;
    }
    assert!(!is_notified(&ledger, first).await);
    assert_eq!(log.count_lines("a webhook could not be delivered"), 1);
    assert!(log.has_line("status 500"));
    // A call that is decided is not reported any more.
    let decision = Decision {
        verdict: Verdict::Deny,
        by: "boss".into(),
        note: None,
    };
    registry.decide(first, decision).await.unwrap();
    pass_until_notified(&ledger, first).await;
    assert!(!is_notified(&ledger, second).await);
    while receiver.arrived.try_recv().is_ok() {}
    *receiver.statuses.lock() = vec![failing, StatusCode::OK];
    for _ in 0..2 {
        let (headers, _) = receiver.next_retry().await;
        assert_eq!(headers["webhook-id"], format!("msg_{second}"));
    }
    wait_until_notified(&ledger, second).await;
    assert_eq!(log.count_lines("webhooks are delivered again"), 1);
    assert_eq!(log.count_lines("a webhook could not be delivered"), 1);
    let now = ServiceState {
        calls: 0,
        cache_entries: 0,
        cache_bytes: 0,
        ledger_up: true,
        lines_lost: 0,
        sources: vec![],
        sandboxes: vec![],
    };
    let metrics = registry.shared().metrics.render(now).unwrap();
    let delivered = r#"toolcrib_approval_webhooks_total{outcome="delivered"} 1"#;
    assert!(metrics.lines().any(|line| line == delivered), "{metrics}");
}

#[tokio::test]
async fn log_says_why_a_webhook_is_not_delivered_without_its_url() {
    // The receiver does not answer.
    let log = capture_log();
    let (registry, _) = service();
    waiting_call(&registry).await;
    let mut receiver = Answering::with(&[]).await;
    let sending = tokio::spawn(send_approval_webhooks(registry, receiver.notices()));
    receiver.next().await;
    while !log.has_line("no answer in time") {
        pass(SECOND).await;
    }
    sending.abort();
    drop(log);
    // Nothing listens there.
    let log = capture_log();
    let (registry, _) = service();
    waiting_call(&registry).await;
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = unused.local_addr().unwrap().port();
    drop(unused);
    tokio::spawn(send_approval_webhooks(registry, notices(port)));
    while !log.has_line("a webhook could not be delivered") {
        tokio::task::yield_now().await;
    }
    assert!(log.has_line("Connection refused"));
    assert!(!log.has_line("hook-token"));
}

#[tokio::test]
async fn webhook_under_way_is_not_sent_twice() {
    let (registry, ledger) = service();
    let id = waiting_call(&registry).await;
    let mut receiver = Answering::with(&[]).await;
    tokio::spawn(send_approval_webhooks(registry.clone(), receiver.notices()));
    receiver.next().await;
    // Several looks, in less than the time for one request. The next call does not wait for it.
    for _ in 0..5 {
        pass(SECOND).await;
    }
    *receiver.statuses.lock() = vec![StatusCode::OK];
    let next = waiting_call(&registry).await;
    assert_eq!(receiver.next_call().await, format!("msg_{next}"));
    wait_until_notified(&ledger, next).await;
    assert!(!is_notified(&ledger, id).await);
}

#[tokio::test]
async fn webhooks_are_sent_by_the_process_that_stored_the_call_or_if_it_has_ended() {
    let (registry, ledger) = service();
    let own = waiting_call(&registry).await;
    let row = ledger.find_approval(own).await.unwrap().unwrap();
    let stored_by = async |runner: &str| {
        let row = ApprovalRow {
            invocation: InvocationId::new(),
            runner: runner.into(),
            ..row.clone()
        };
        ledger.request_approval(row.clone()).await.unwrap();
        row.invocation
    };
    let (living, ended) = (stored_by("living").await, stored_by("ended").await);
    let denied = ApprovalRow {
        invocation: InvocationId::new(),
        state: ApprovalState::Denied,
        ..row.clone()
    };
    ledger.request_approval(denied.clone()).await.unwrap();
    ledger.set_living(&["living", &row.runner]);
    let receiver = Answering::with(&[StatusCode::OK]).await;
    tokio::spawn(send_approval_webhooks(registry, receiver.notices()));
    for id in [own, ended] {
        wait_until_notified(&ledger, id).await;
    }
    for id in [living, denied.invocation] {
        assert!(!is_notified(&ledger, id).await);
    }
    ledger.set_living(&[]);
    pass_until_notified(&ledger, living).await;
}

#[tokio::test]
async fn all_of_many_waiting_calls_are_reported_once() {
    let (registry, ledger) = service();
    let mut calls = Vec::new();
    for _ in 0..250 {
        calls.push(waiting_call(&registry).await);
    }
    let mut receiver = Answering::with(&[StatusCode::OK]).await;
    tokio::spawn(send_approval_webhooks(registry, receiver.notices()));
    for id in calls {
        wait_until_notified(&ledger, id).await;
    }
    let mut requests = 0;
    while receiver.arrived.try_recv().is_ok() {
        requests += 1;
    }
    assert_eq!(requests, 250);
}
