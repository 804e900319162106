//! How many files and sockets the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Enough for all connections and for the pipes and sockets of a thousand calls. Not more, since programs that tools
/// start inherit it, and some close every handle up to the limit before they begin.
const ENOUGH: u64 = 8192;

/// Raises the process's limit, where it is lower and the system lets it be raised. Many systems begin with 1,024 for the
/// sake of select(2). For a program's `main`; a library leaves limits alone.
pub fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(ENOUGH, |most| most.min(ENOUGH));
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum });
        if let Err(error) = raised {
            tracing::warn!(%error, "the limit of open files cannot be raised");
        }
    }
    tracing::debug!(limit = self::limit(), "files that may be open");
}

/// Open files and sockets that the process may have; `None` for no limit.
pub fn limit() -> Option<usize> {
    getrlimit(Resource::Nofile).current.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
}
