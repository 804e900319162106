//! `initialize`, sent to a process while `server/discover` has no answer yet: some servers ignore what
//! they do not know. The SDK would wait ten seconds. A server that starts slowly gets both requests.
//! If it answers both, its answer to `server/discover` counts.

use std::time::Duration;

use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, InitializeRequest, InitializeRequestParams,
    JsonRpcMessage, NumberOrString, RequestId, ServerJsonRpcMessage,
};
use tokio::time::{Instant, sleep_until};

/// How long `server/discover` may have no answer before `initialize` is sent.
const SEND_AFTER: Duration = Duration::from_secs(1);
/// How long a server that has answered `initialize` may take for `server/discover`.
const GRACE: Duration = Duration::from_millis(500);
/// The id of the request. The SDK counts from zero.
const ID: RequestId = NumberOrString::Number(i32::MAX as i64);

/// The request and its answer. The default is never sent.
#[derive(Default)]
pub(super) struct EarlyInitialize {
    /// The request, until it is sent.
    unsent: Option<InitializeRequestParams>,
    is_sent: bool,
    /// When the next step is due.
    due: Option<Instant>,
    answer: Option<ServerJsonRpcMessage>,
    /// The id of the SDK's own request, which is not sent.
    sdk_id: Option<RequestId>,
}

/// What to do if `server/discover` still has no answer.
pub(super) enum Step {
    /// Send this request.
    Send(Box<ClientJsonRpcMessage>),
    /// Let the SDK go on with `initialize`.
    GiveUp,
}

impl EarlyInitialize {
    pub(super) fn new(params: InitializeRequestParams) -> Self {
        Self {
            unsent: Some(params),
            ..Self::default()
        }
    }

    /// Notes that `server/discover` is being sent.
    pub(super) fn note_discovery(&mut self) {
        self.due = self.unsent.is_some().then(|| Instant::now() + SEND_AFTER);
    }

    /// Waits until a step is due. Dropping the future loses nothing.
    pub(super) async fn next_step(&mut self) -> Step {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
        self.due = None;
        match self.unsent.take() {
            Some(params) => {
                self.is_sent = true;
                let request = ClientRequest::InitializeRequest(InitializeRequest::new(params));
                Step::Send(Box::new(JsonRpcMessage::request(request, ID)))
            }
            None => Step::GiveUp,
        }
    }

    /// Whether this is the SDK's `initialize`, and was sent already.
    pub(super) fn replaces(&mut self, message: &ClientJsonRpcMessage) -> bool {
        match message {
            JsonRpcMessage::Request(message)
                if matches!(message.request, ClientRequest::InitializeRequest(_)) =>
            {
                self.sdk_id = Some(message.id.clone());
                self.is_sent
            }
            _ => false,
        }
    }

    /// Keeps the answer. Returns the message if it is another one.
    pub(super) fn keep_answer(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> Option<ServerJsonRpcMessage> {
        let id = match &message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => None,
        };
        if !is_answer(&ID, id) {
            return Some(message);
        }
        self.due = Some(Instant::now() + GRACE);
        self.answer = Some(message);
        None
    }

    /// The answer, as one to the SDK's own request.
    pub(super) fn take_answer(&mut self) -> Option<ServerJsonRpcMessage> {
        let id = self.sdk_id.clone()?;
        let mut answer = self.answer.take()?;
        match &mut answer {
            JsonRpcMessage::Response(response) => response.id = id,
            JsonRpcMessage::Error(error) => error.id = Some(id),
            _ => {}
        }
        Some(answer)
    }
}

/// Whether a message with this id answers the request. The SDK also accepts the number as a text.
pub(super) fn is_answer(request: &RequestId, id: Option<&RequestId>) -> bool {
    id.is_some_and(|id| {
        request == id
            || matches!(id, NumberOrString::String(text) if **text == *request.to_string())
    })
}
