//! What a child process applies to itself, between fork and exec.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::Resource;
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};
use seccompiler::BpfProgram;

use super::limits;

/// What the child process applies to itself.
#[derive(Default)]
pub(crate) struct ChildSettings {
    pub(super) ruleset: Option<Arc<OwnedFd>>,
    pub(super) limits: Vec<(Resource, u64)>,
    pub(super) filters: Arc<[BpfProgram]>,
    /// The capabilities that it keeps; `None`: all that it has.
    pub(super) capabilities: Option<CapabilitySet>,
    /// Files that bubblewrap reads.
    pub(super) inherited: Vec<OwnedFd>,
}

impl ChildSettings {
    /// Applies limits and capabilities to this process. It makes system calls on its own values; it takes no lock and
    /// allocates no memory.
    pub(crate) fn apply(&self) -> io::Result<()> {
        for file in &self.inherited {
            fcntl_setfd(file, FdFlags::empty())?;
        }
        for limit in &self.limits {
            limits::set_limit(*limit);
        }
        if let Some(kept) = self.capabilities {
            for capability in CapabilitySet::all() - kept {
                // Fails for those that this kernel does not have.
                let _ = remove_capability_from_bounding_set(capability);
            }
            // An old kernel has none.
            let _ = clear_ambient_capability_set();
            let sets = CapabilitySets {
                effective: kept,
                permitted: kept,
                inheritable: CapabilitySet::empty(),
            };
            let _ = set_capabilities(None, sets);
        }
        Ok(())
    }

    /// The ruleset of Landlock.
    pub(crate) fn ruleset(&self) -> Option<BorrowedFd<'_>> {
        self.ruleset.as_ref().map(|ruleset| ruleset.as_fd())
    }

    /// Filters the system calls of this process from now on, with the same care.
    pub(crate) fn apply_filters(&self) -> io::Result<()> {
        for filter in self.filters.iter() {
            seccompiler::apply_filter(filter).map_err(|_| io::Error::last_os_error())?;
        }
        Ok(())
    }
}
