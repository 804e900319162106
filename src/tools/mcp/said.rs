//! What a server has said of its tools over one connection: a tool that was approved is called only while it says the same.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::connection::Connection;
use super::connector::Connector;
use super::listing::Listing;
use crate::tools::Prints;

/// A server that says all the time that its tools have changed is asked so often for one call.
const ASKED: usize = 3;

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
    /// They have changed and could not be listed; whoever watches the source tries again.
    Not(String),
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
            state.known = match listing {
                Ok(listing) => Known::Tools(
                    listing.tools.iter().map(|one| (one.tool.name.to_string(), one.prints.whole)).collect(),
                ),
                Err(why) => Known::Not(why.clone()),
            };
        }
    }

    fn judge(&self, tool: &str, prints: &Prints) -> Option<Result<(), Doubt>> {
        match &self.state().known {
            Known::Nothing => None,
            Known::Tools(tools) if tools.get(tool) == Some(&prints.whole) => Some(Ok(())),
            Known::Tools(_) => Some(Err(Doubt::Changed)),
            Known::Not(why) => Some(Err(Doubt::Unlisted(why.clone()))),
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
    let said = &connection.said;
    for _ in 0..ASKED {
        if let Some(verdict) = said.judge(tool, prints) {
            return verdict;
        }
        let _one_at_a_time = said.asking.lock().await;
        if matches!(said.state().known, Known::Nothing) {
            let _ = connector.relisted(connection).await;
        }
    }
    let always = || Err(Doubt::Unlisted("it says all the time that they have changed".into()));
    said.judge(tool, prints).unwrap_or_else(always)
}
