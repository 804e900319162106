//! What a server has said of its tools over one connection: a tool that was approved is called only while it says the same.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::connection::Connection;
use super::connector::Connector;
use super::listing::Listing;
use crate::tools::Prints;

/// A server that says all the time that its tools have changed is asked so often for one call.
const ASKED: usize = 3;
/// After a listing that failed it is not asked for so long; the calls meanwhile are told why.
const FORGOTTEN: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Default)]
pub(super) struct SaidOf {
    state: Mutex<State>,
    /// Who asks what the tools are; the others wait for what is answered.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    known: Known,
    /// How often it has said that its tools have changed.
    changes: u64,
}

#[derive(Default)]
enum Known {
    /// They have changed since they were listed.
    #[default]
    Nothing,
    /// Hashes of the definitions, by its names.
    Tools(HashMap<String, [u8; 32]>),
    /// They have changed and could not be listed, just now.
    Not(String, Instant),
}

/// Why a tool must not be called.
pub(super) enum Doubt {
    /// It is another, or gone.
    Changed,
    /// Nobody knows what it is now.
    Unlisted(String),
}

impl SaidOf {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It says that its tools have changed.
    pub(super) fn has_changed(&self) {
        let mut state = self.state();
        (state.known, state.changes) = (Known::Nothing, state.changes + 1);
    }

    /// Stands for this moment: what is asked for now is of no use when they have changed by the answer.
    pub(super) fn moment(&self) -> u64 {
        self.state().changes
    }

    /// What came of a listing that was begun at that moment.
    pub(super) fn heard(&self, begun: u64, listing: &Result<Listing, String>) {
        let mut state = self.state();
        if state.changes == begun {
            match listing {
                Ok(listing) => {
                    let tools = listing.tools.iter().map(|one| (one.tool.name.to_string(), one.prints.whole));
                    state.known = Known::Tools(tools.collect());
                }
                // Somebody else's listing of the same moment came through.
                Err(_) if matches!(state.known, Known::Tools(_)) => {}
                Err(why) => state.known = Known::Not(why.clone(), Instant::now()),
            }
        }
    }

    fn judge(&self, tool: &str, prints: &Prints) -> Option<Result<(), Doubt>> {
        match &self.state().known {
            Known::Nothing => None,
            Known::Tools(tools) if tools.get(tool) == Some(&prints.whole) => Some(Ok(())),
            Known::Tools(_) => Some(Err(Doubt::Changed)),
            Known::Not(_, at) if at.elapsed() >= FORGOTTEN => None,
            Known::Not(why, _) => Some(Err(Doubt::Unlisted(why.clone()))),
        }
    }
}

/// Whether the server on this connection says just that of a tool. It is asked, if it has said that they have changed.
pub(super) async fn says(
    connector: &Connector,
    connection: &Connection,
    tool: &str,
    prints: &Prints,
) -> Result<(), Doubt> {
    let said = &connection.line.said;
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
    // It says all the time that they have changed: what it has listed last counts.
    match last {
        Some(Ok(listing))
            if listing.tools.iter().any(|one| one.tool.name == tool && one.prints.whole == prints.whole) =>
        {
            Ok(())
        }
        Some(Ok(_)) | None => Err(Doubt::Changed),
        Some(Err(why)) => Err(Doubt::Unlisted(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing() -> Result<Listing, String> {
        Ok(Listing { tools: Vec::new(), warnings: Vec::new(), left_out: Vec::new() })
    }

    fn verdict(said: &SaidOf) -> &'static str {
        match said.judge("x", &Prints::of("x", [])) {
            None => "ask",
            Some(Ok(())) => "the same",
            Some(Err(Doubt::Changed)) => "another",
            Some(Err(Doubt::Unlisted(_))) => "unlisted",
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_listing_that_fails_counts_for_a_moment_and_never_against_one_that_did_not() {
        let said = SaidOf::default();
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
