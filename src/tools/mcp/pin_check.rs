//! Checks a pinned tool against what its server has listed over one connection. A pinned tool is called only while the
//! server lists the approved definition.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::connection::Connection;
use super::connector::Connector;
use super::listing::Listing;
use crate::tools::DefinitionFingerprint;

/// Most listings for one call of a server that reports changes all the time.
const ASKED: usize = 3;
/// After a failed listing, the server is not asked again for this long. Calls meanwhile fail with the reason.
const FORGOTTEN: Duration = Duration::from_secs(1);

/// The definitions that a server has listed over one connection.
#[derive(Default)]
pub(super) struct VerifiedListing {
    state: Mutex<State>,
    /// Held by the task that lists the tools. The others wait for its result.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    known: Known,
    /// How often the server has reported changed tools.
    changes: u64,
}

#[derive(Default)]
enum Known {
    /// The tools have changed since they were listed.
    #[default]
    Nothing,
    /// Hashes of the definitions, by the server's own names.
    Tools(HashMap<String, [u8; 32]>),
    /// The tools have changed and could not be listed, at this time.
    Not(String, Instant),
}

/// Why a pinned tool cannot be called.
pub(super) enum PinError {
    /// Its definition differs from the approved one, or the server does not list it.
    Changed,
    /// The server could not list its tools, so the definition is not known.
    Unlisted(String),
}

impl VerifiedListing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the server has reported changed tools.
    pub(super) fn has_changed(&self) {
        let mut state = self.state();
        (state.known, state.changes) = (Known::Nothing, state.changes + 1);
    }

    /// The number of changes so far. Take it before a listing, and pass it to [`heard`](Self::heard).
    pub(super) fn moment(&self) -> u64 {
        self.state().changes
    }

    /// Notes the result of a listing that started at `begun`. Ignored if the tools have changed since: the response may
    /// have been made before the change.
    pub(super) fn heard(&self, begun: u64, listing: &Result<Listing, String>) {
        let mut state = self.state();
        if state.changes == begun {
            match listing {
                Ok(listing) => {
                    let tools = listing.tools.iter().map(|one| (one.tool.name.to_string(), one.prints.whole));
                    state.known = Known::Tools(tools.collect());
                }
                // Another listing of the same moment succeeded. Keep it.
                Err(_) if matches!(state.known, Known::Tools(_)) => {}
                Err(why) => state.known = Known::Not(why.clone(), Instant::now()),
            }
        }
    }

    fn judge(&self, tool: &str, prints: &DefinitionFingerprint) -> Option<Result<(), PinError>> {
        match &self.state().known {
            Known::Nothing => None,
            Known::Tools(tools) if tools.get(tool) == Some(&prints.whole) => Some(Ok(())),
            Known::Tools(_) => Some(Err(PinError::Changed)),
            Known::Not(_, at) if at.elapsed() >= FORGOTTEN => None,
            Known::Not(why, _) => Some(Err(PinError::Unlisted(why.clone()))),
        }
    }
}

/// Checks that the server on this connection lists exactly this definition. Lists the tools, if they have changed.
pub(super) async fn says(
    connector: &Connector,
    connection: &Connection,
    tool: &str,
    prints: &DefinitionFingerprint,
) -> Result<(), PinError> {
    let said = &connection.line.said;
    // `asking` lets one call list the tools, and the others use its result. So after waiting for it, judge again first.
    // A change during the listing discards its result, and the loop repeats.
    let mut last = None;
    for _ in 0..ASKED {
        if let Some(verdict) = said.judge(tool, prints) {
            return verdict;
        }
        let _one_at_a_time = said.asking.lock().await;
        if let Some(verdict) = said.judge(tool, prints) {
            return verdict;
        }
        last = Some(connector.relisted(connection).await);
    }
    // The server reports changes all the time, so its last listing counts.
    match last {
        Some(Ok(listing))
            if listing.tools.iter().any(|one| one.tool.name == tool && one.prints.whole == prints.whole) =>
        {
            Ok(())
        }
        Some(Ok(_)) | None => Err(PinError::Changed),
        Some(Err(why)) => Err(PinError::Unlisted(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing() -> Result<Listing, String> {
        Ok(Listing { tools: Vec::new(), warnings: Vec::new(), left_out: Vec::new() })
    }

    fn verdict(said: &VerifiedListing) -> &'static str {
        match said.judge("x", &DefinitionFingerprint::of("x", [])) {
            None => "ask",
            Some(Ok(())) => "the same",
            Some(Err(PinError::Changed)) => "another",
            Some(Err(PinError::Unlisted(_))) => "unlisted",
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_listing_that_fails_counts_for_a_moment_and_never_against_one_that_did_not() {
        let said = VerifiedListing::default();
        assert_eq!(verdict(&said), "ask");
        said.heard(0, &listing());
        said.heard(0, &Err("too late".into()));
        assert_eq!(verdict(&said), "another", "somebody else's listing of that moment holds");
        said.has_changed();
        said.heard(0, &listing());
        assert_eq!(verdict(&said), "ask", "that was before the change");
        said.heard(1, &Err("refused".into()));
        assert_eq!(verdict(&said), "unlisted");
        tokio::time::advance(FORGOTTEN).await;
        assert_eq!(verdict(&said), "ask");
        said.heard(1, &listing());
        assert_eq!(verdict(&said), "another");
    }
}
