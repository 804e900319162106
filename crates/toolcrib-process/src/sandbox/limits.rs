//! Bounds of resources, which a process and its descendants inherit.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit};

use super::rules::Limits;

/// How many threads the service may start while a program runs. Without it, a busy service would take the
/// processes of its programs.
const SERVICE_GROWTH: u64 = 64;

/// The limits to set, each with its value.
pub(super) fn resource_limits(limits: Limits) -> Vec<(Resource, u64)> {
    // Of the addresses only those count that the process may write to and shares with no other. Programs
    // such as Node reserve far more addresses than they use.
    [
        (Resource::Data, limits.memory),
        (Resource::Cpu, limits.cpu_seconds),
        (Resource::Nofile, limits.files),
        (Resource::Fsize, limits.disk),
        // The kernel counts all threads of the user, those of the service too.
        (
            Resource::Nproc,
            limits
                .processes
                .map(|most| most + own_threads() + SERVICE_GROWTH),
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

/// The threads of this user. The kernel gives the folder of a process that hides its memory, as the service does,
/// to root: only `status` names the user of every process.
fn own_threads() -> u64 {
    let user = getuid().as_raw();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let threads = processes
        .filter_map(|process| fs::read_to_string(process.path().join("status")).ok())
        .filter(|status| first_number(status, "Uid:") == Some(u64::from(user)))
        .filter_map(|status| first_number(&status, "Threads:"));
    threads.sum()
}

/// The first number of a field of `/proc/*/status`, see proc_pid_status(5).
fn first_number(status: &str, field: &str) -> Option<u64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(field))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}
