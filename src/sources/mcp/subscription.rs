//! Subscribes to changes of tools. Servers without sessions report changes only to subscribers.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{ErrorCode, ErrorData, SubscriptionFilter};
use rmcp::service::Peer;
use rmcp::{RoleClient, ServiceError};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::transport_adapter::SharedConnectionState;

/// Pause before a subscription that has ended is requested again.
const MIN_PAUSE: Duration = Duration::from_secs(5);
/// Longest pause. It doubles with each failed request.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Keeps a subscription, if the server offers one. `transport_adapter` sees its notifications as
/// they come in.
pub(super) fn keep_subscribed(
    peer: &Peer<RoleClient>,
    state: &Arc<SharedConnectionState>,
    is_sessionless: bool,
) -> Option<AbortOnDropHandle<()>> {
    let tools = peer.peer_info()?.capabilities.tools.clone();
    if !is_sessionless || tools.and_then(|tools| tools.list_changed) != Some(true) {
        return None;
    }
    let (peer, state) = (peer.clone(), state.clone());
    Some(AbortOnDropHandle::new(tokio::spawn(async move {
        let (mut pause, mut was_unsubscribed) = (MIN_PAUSE, false);
        while !state.closed.is_cancelled() {
            match peer
                .listen(SubscriptionFilter::builder().tools_list_changed().build())
                .await
            {
                Ok(mut changes) => {
                    if was_unsubscribed {
                        // Changes during the pause were not reported, so count one.
                        state.note_change();
                    }
                    pause = MIN_PAUSE;
                    while let Ok(Some(_)) = changes.next().await {}
                    // Changes from now on are not reported, so count one.
                    state.note_change();
                }
                Err(error) if is_unsupported(&error) => return,
                Err(_) => {}
            }
            was_unsubscribed = true;
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    })))
}

/// Whether the server does not really support subscriptions. Any other failure may pass.
fn is_unsupported(error: &ServiceError) -> bool {
    let ServiceError::McpError(ErrorData { code, .. }) = error else {
        return false;
    };
    [
        ErrorCode::METHOD_NOT_FOUND,
        ErrorCode::INVALID_REQUEST,
        ErrorCode::INVALID_PARAMS,
    ]
    .contains(code)
}
