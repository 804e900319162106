//! The definitions that a server has listed over one connection, with which pinned tools are
//! compared.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::listing::ServerListing;
use crate::sources::DefinitionFingerprint;

/// After a failed listing, the tools are not listed again for this long. Calls meanwhile fail with
/// the reason.
const FAILURE_LIFETIME: Duration = Duration::from_secs(1);

/// The definitions that a server has listed over one connection.
#[derive(Default)]
pub(super) struct VerifiedListing {
    state: Mutex<State>,
    /// Held by the task that lists the tools. The others wait for its result.
    pub(super) listing_lock: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    known: KnownTools,
    /// How often the server has reported changed tools.
    change_count: u64,
}

#[derive(Default)]
enum KnownTools {
    /// The tools have changed since they were listed.
    #[default]
    Outdated,
    /// Hashes of the definitions, by the server's own names.
    Listed(HashMap<String, [u8; 32]>),
    /// The tools have changed and could not be listed, at this time.
    Failed(String, Instant),
}

/// Why a pinned tool cannot be called.
pub(super) enum PinError {
    /// Its definition differs from the approved one, or the server does not list it.
    Changed,
    /// The server could not list its tools, so the definition is not known.
    ListingFailed(String),
}

impl VerifiedListing {
    /// Notes that the server has reported changed tools.
    pub(super) fn note_change(&self) {
        let mut state = self.state.lock();
        (state.known, state.change_count) = (KnownTools::Outdated, state.change_count + 1);
    }

    /// Lists the tools, and remembers the outcome unless the tools change meanwhile.
    pub(super) async fn remember(
        &self,
        listing: impl Future<Output = Result<ServerListing, String>>,
    ) -> Result<ServerListing, String> {
        let change_count = self.state.lock().change_count;
        let listing = listing.await;
        self.record_listing(change_count, &listing);
        listing
    }

    /// Records the result of a listing that started at this number of changes. Ignored if the tools
    /// have changed since: the response may have been made before the change.
    fn record_listing(&self, change_count: u64, listing: &Result<ServerListing, String>) {
        let mut state = self.state.lock();
        if state.change_count == change_count {
            match listing {
                Ok(listing) => {
                    let tools = listing
                        .tools
                        .iter()
                        .map(|listed| (listed.tool.name.to_string(), listed.fingerprint.full_hash));
                    state.known = KnownTools::Listed(tools.collect());
                }
                // Another listing since the same change succeeded. Keep it.
                Err(_) if matches!(state.known, KnownTools::Listed(_)) => {}
                Err(reason) => state.known = KnownTools::Failed(reason.clone(), Instant::now()),
            }
        }
    }

    /// Compares a tool's definition with the listed one; `None`: the tools must be listed first.
    pub(super) fn check_definition(
        &self,
        tool: &str,
        approved: &DefinitionFingerprint,
    ) -> Option<Result<(), PinError>> {
        match &self.state.lock().known {
            KnownTools::Outdated => None,
            KnownTools::Listed(tools) if tools.get(tool) == Some(&approved.full_hash) => {
                Some(Ok(()))
            }
            KnownTools::Listed(_) => Some(Err(PinError::Changed)),
            KnownTools::Failed(_, at) if at.elapsed() >= FAILURE_LIFETIME => None,
            KnownTools::Failed(reason, _) => Some(Err(PinError::ListingFailed(reason.clone()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing() -> Result<ServerListing, String> {
        Ok(ServerListing {
            tools: Vec::new(),
            warnings: Vec::new(),
            skipped_names: Vec::new(),
        })
    }

    fn verdict(verified: &VerifiedListing) -> &'static str {
        match verified.check_definition("x", &DefinitionFingerprint::new("x", [])) {
            None => "ask",
            Some(Ok(())) => "the same",
            Some(Err(PinError::Changed)) => "another",
            Some(Err(PinError::ListingFailed(_))) => "unlisted",
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failed_listing_expires_and_replaces_no_success() {
        let verified = VerifiedListing::default();
        assert_eq!(verdict(&verified), "ask");
        verified.record_listing(0, &listing());
        verified.record_listing(0, &Err("too late".into()));
        assert_eq!(
            verdict(&verified),
            "another",
            "an earlier listing since the same change holds"
        );
        verified.note_change();
        verified.record_listing(0, &listing());
        assert_eq!(verdict(&verified), "ask", "that was before the change");
        verified.record_listing(1, &Err("refused".into()));
        assert_eq!(verdict(&verified), "unlisted");
        tokio::time::advance(FAILURE_LIFETIME).await;
        assert_eq!(verdict(&verified), "ask");
        verified.record_listing(1, &listing());
        assert_eq!(verdict(&verified), "another");
    }
}
