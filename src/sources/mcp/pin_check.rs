//! Checks a pinned tool against what its server has listed over one connection. A pinned tool is
//! called only while the server lists the approved definition.

use super::connection::Connection;
use super::connector::Connector;
use super::verified_listing::PinError;
use crate::sources::DefinitionFingerprint;

/// Most listings for one call of a server that reports changes all the time.
const MAX_LISTINGS: usize = 3;

/// Checks that the server on this connection lists exactly this definition. Lists the tools, if
/// they have changed.
pub(super) async fn verify_pin(
    connector: &Connector,
    connection: &Connection,
    tool: &str,
    approved: &DefinitionFingerprint,
) -> Result<(), PinError> {
    let verified = &connection.state.verified;
    // `listing_lock` lets one call list the tools, and the others use its result. So check again
    // after waiting for it. A change during the listing discards its result, and the loop repeats.
    let mut last = None;
    for _ in 0..MAX_LISTINGS {
        if let Some(verdict) = verified.check_definition(tool, approved) {
            return verdict;
        }
        let _guard = verified.listing_lock.lock().await;
        if let Some(verdict) = verified.check_definition(tool, approved) {
            return verdict;
        }
        last = Some(connector.relist(connection).await);
    }
    // The server reports changes all the time, so its last listing counts.
    match last {
        Some(Ok(listing))
            if listing.tools.iter().any(|listed| {
                listed.tool.name == tool && listed.fingerprint.full_hash == approved.full_hash
            }) =>
        {
            Ok(())
        }
        Some(Ok(_)) | None => Err(PinError::Changed),
        Some(Err(reason)) => Err(PinError::ListingFailed(reason)),
    }
}
