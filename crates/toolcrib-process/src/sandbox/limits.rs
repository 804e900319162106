//! Bounds of resources, which a process and its descendants inherit.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};

use super::rules::Limits;

/// The limits to set, each with its value.
pub(super) fn resource_limits(limits: Limits) -> Vec<(Resource, u64)> {
    // Of the addresses only those count that the process may write to and shares with no other. Programs
    // such as Node reserve far more addresses than they use.
    [
        (Resource::Data, limits.memory),
        (Resource::Cpu, limits.cpu_seconds),
        (Resource::Nofile, limits.files),
        (Resource::Fsize, limits.disk),
        // The kernel counts all threads of the user.
        (
            Resource::Nproc,
            limits.processes.map(|most| most + own_threads()),
        ),
    ]
    .into_iter()
    .filter_map(|(resource, value)| Some((resource, value?)))
    .collect()
}

/// Sets a limit that cannot be raised, if it is below the present one.
pub(super) fn set_limit((resource, value): (Resource, u64)) {
    let most = getrlimit(resource).maximum.unwrap_or(u64::MAX).min(value);
    let limit = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    // A limit that cannot be set is one that the process already has.
    let _ = setrlimit(resource, limit);
}

/// The threads of this user.
fn own_threads() -> u64 {
    let user = geteuid().as_raw();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let threads = processes
        .filter(|process| {
            process
                .file_name()
                .as_encoded_bytes()
                .iter()
                .all(u8::is_ascii_digit)
        })
        .filter(|process| process.metadata().is_ok_and(|found| found.uid() == user))
        .filter_map(|process| fs::read_dir(process.path().join("task")).ok())
        .map(|tasks| tasks.count() as u64);
    threads.sum()
}
