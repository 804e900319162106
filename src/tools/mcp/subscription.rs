//! Hears of changes from servers without sessions, which tell only those who have asked.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::SubscriptionFilter;
use rmcp::service::Peer;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::tap::Line;

/// Before a subscription that has ended is asked for again.
const PAUSE: Duration = Duration::from_secs(5);

/// Keeps a subscription, if the server offers one. What it tells is noticed on its way in (`tap`).
pub(super) fn follow(peer: &Peer<RoleClient>, line: &Arc<Line>, is_modern: bool) -> Option<AbortOnDropHandle<()>> {
    let tools = peer.peer_info()?.capabilities.tools.clone();
    if !is_modern || tools.and_then(|tools| tools.list_changed) != Some(true) {
        return None;
    }
    let (peer, line) = (peer.clone(), line.clone());
    Some(AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            // Refused: it does not mean what it says of itself.
            let Ok(mut changes) = peer.listen(SubscriptionFilter::builder().tools_list_changed().build()).await else {
                return;
            };
            while let Ok(Some(_)) = changes.next().await {}
            sleep(PAUSE).await;
            // What happened meanwhile nobody has told.
            line.has_changed();
        }
    })))
}
