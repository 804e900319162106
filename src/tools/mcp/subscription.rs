//! Subscribes to changes of tools. Servers without sessions report changes only to subscribers.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{ErrorCode, ErrorData, SubscriptionFilter};
use rmcp::service::Peer;
use rmcp::{RoleClient, ServiceError};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::transport_adapter::ConnectionState;

/// Pause before a subscription that has ended is requested again.
const PAUSE: Duration = Duration::from_secs(5);
/// Longest pause. It doubles with each failed request.
const LONGEST: Duration = Duration::from_secs(60);

/// Keeps a subscription, if the server offers one. `tap` sees its notifications as they come in.
pub(super) fn follow(
    peer: &Peer<RoleClient>,
    line: &Arc<ConnectionState>,
    is_modern: bool,
) -> Option<AbortOnDropHandle<()>> {
    let tools = peer.peer_info()?.capabilities.tools.clone();
    if !is_modern || tools.and_then(|tools| tools.list_changed) != Some(true) {
        return None;
    }
    let (peer, line) = (peer.clone(), line.clone());
    Some(AbortOnDropHandle::new(tokio::spawn(async move {
        let (mut pause, mut was_deaf) = (PAUSE, false);
        while !line.over.is_cancelled() {
            match peer.listen(SubscriptionFilter::builder().tools_list_changed().build()).await {
                Ok(mut changes) => {
                    if was_deaf {
                        // Changes during the pause were not reported, so count one.
                        line.has_changed();
                    }
                    pause = PAUSE;
                    while let Ok(Some(_)) = changes.next().await {}
                    // Changes from now on are not reported, so count one.
                    line.has_changed();
                }
                Err(error) if is_never(&error) => return,
                Err(_) => {}
            }
            was_deaf = true;
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST);
        }
    })))
}

/// Whether the server does not really support subscriptions. Any other failure may pass.
fn is_never(error: &ServiceError) -> bool {
    let ServiceError::McpError(ErrorData { code, .. }) = error else { return false };
    [ErrorCode::METHOD_NOT_FOUND, ErrorCode::INVALID_REQUEST, ErrorCode::INVALID_PARAMS].contains(code)
}
