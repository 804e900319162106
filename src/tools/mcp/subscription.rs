//! Hears of changes from servers without sessions, which tell only those who have asked.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{ErrorCode, ErrorData, SubscriptionFilter};
use rmcp::service::Peer;
use rmcp::{RoleClient, ServiceError};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::tap::Line;

/// Before a subscription that has ended is asked for again.
const PAUSE: Duration = Duration::from_secs(5);
/// The longest pause: each further one in vain is twice as long.
const LONGEST: Duration = Duration::from_secs(60);

/// Keeps a subscription, if the server offers one. What it tells is noticed on its way in (`tap`).
pub(super) fn follow(peer: &Peer<RoleClient>, line: &Arc<Line>, is_modern: bool) -> Option<AbortOnDropHandle<()>> {
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
                        // What happened meanwhile nobody has told.
                        line.has_changed();
                    }
                    pause = PAUSE;
                    while let Ok(Some(_)) = changes.next().await {}
                    // What happens from now on nobody tells.
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

/// It does not mean what it says of itself; any other failure may pass.
fn is_never(error: &ServiceError) -> bool {
    let ServiceError::McpError(ErrorData { code, .. }) = error else { return false };
    [ErrorCode::METHOD_NOT_FOUND, ErrorCode::INVALID_REQUEST, ErrorCode::INVALID_PARAMS].contains(code)
}
