//! Finds, kills and reaps the processes that a program has left behind, until none remains.
//!
//! A process that moved to another session is found in three ways:
//!
//! - as a descendant, while its parents live;
//! - by environment variables that every descendant inherits, in `/proc/PID/environ`;
//! - by a resource limit that every descendant inherits too, in `/proc/PID/limits`.
//!
//! The limit is `RLIMIT_RTTIME`, for real-time computing. Its value is a number that is unique to
//! the program, and so high that it limits nothing. A process escapes only if it left the group,
//! outlived its parent, cleared its environment and changed that limit, or was started before the
//! limit was set, a moment after the start of the program. Only a PID namespace would catch it.
//!
//! We do not become a subreaper (`PR_SET_CHILD_SUBREAPER`). It is a setting of the whole process,
//! which belongs to the embedding program. Unknown orphans would be re-parented to us, and reaping
//! them with `waitpid(-1)` would steal exit statuses that tokio waits for. Without this setting,
//! orphans go to init, which reaps them; in a container, init should be a program that reaps. If
//! an embedding program is PID 1 without our init, we reap what we have killed, each process by its
//! own id.

use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpgid, waitpid};
use rustix::time::{ClockId, clock_gettime};
use tokio::process::{Child, Command};

/// How long a job waits in total, if it finds a process in every round.
const MAX_REAP_TIME: Duration = Duration::from_secs(5);
/// How long dropping an [`OrphanReaper`] waits for its running jobs.
const MAX_DROP_WAIT: Duration = Duration::from_secs(2);
/// The most descendants that one round kills; the next round finds the others.
const MAX_DESCENDANTS: usize = 1024;
/// A process younger than this, in seconds, may still be in the `execve` of its program.
const EXECVE_GRACE_SECONDS: u64 = 2;
/// The id that the kernel has assigned last (`proc_sys_kernel(5)`).
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";
/// Most ids that [`ProcessMarker::may_be_in_use`] looks at, and the longest life of a program for which
/// they suffice: within this time, ids do not begin anew.
const MAX_LOOK: i32 = 256;
const MAX_LOOK_SECONDS: u64 = 1;
/// The pause after a round that has killed something.
const MIN_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause while killed processes have not ended yet.
const MAX_PAUSE: Duration = Duration::from_millis(50);

/// How a process is recognized as a descendant: variables in its environment, each with its value.
/// The combination must be unique to one program.
pub struct ProcessMarker {
    variables: Vec<(&'static str, String)>,
    /// The marker as the value of a resource limit, which is compared with the limit of every process
    /// on the machine. In microseconds it is more than 70,000 years, so it limits nothing.
    pub(super) limit_value: u64,
    /// The time of creation, in ticks since the machine's boot. A process that started earlier is
    /// not a descendant.
    created_at: u64,
}

impl ProcessMarker {
    /// A marker with these variables, for a program that will be started.
    pub fn new(variables: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        const HIGH: u64 = 1 << 61;
        let variables: Vec<_> = variables.into_iter().collect();
        let mut hasher = DefaultHasher::new();
        variables.hash(&mut hasher);
        let random = hasher.finish();
        Self {
            variables,
            limit_value: HIGH | (random % HIGH),
            created_at: boot_ticks(),
        }
    }

    /// Adds the variables to a program that will be started.
    pub(super) fn apply_to(&self, command: &mut Command) {
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
    }

    /// Whether a process may have the marker, after the end of the program with this id. The kernel
    /// assigns ids in ascending order, so a descendant has an id between that of the program and the
    /// last one. After a long time the ids may have begun anew, so that only a search of all processes
    /// can tell.
    pub(super) fn may_be_in_use(&self, program: Pid) -> bool {
        let age = boot_ticks().saturating_sub(self.created_at);
        if age > MAX_LOOK_SECONDS * clock_ticks_per_second() {
            return true;
        }
        let last = fs::read_to_string(LAST_PID).ok();
        let last = last.and_then(|last| last.trim().parse::<i32>().ok());
        let first = program.as_raw_nonzero().get();
        let Some(last) = last.filter(|last| (0..MAX_LOOK).contains(&(last - first))) else {
            return true;
        };
        (first + 1..=last)
            .filter_map(Pid::from_raw)
            .filter_map(|pid| Some((pid, ProcessStat::read(pid)?)))
            .any(|(pid, process)| self.match_process(pid, &process) != MarkerMatch::No)
    }

    fn match_process(&self, pid: Pid, process: &ProcessStat) -> MarkerMatch {
        // A zombie still has its limits until its parent reaps it.
        if process.is_zombie || process.start_ticks < self.created_at {
            return MarkerMatch::No;
        }
        let limits = fs::read_to_string(format!("/proc/{pid}/limits"));
        if limits.is_ok_and(|limits| real_time_limit(&limits) == Some(self.limit_value)) {
            return MarkerMatch::Yes;
        }
        let environment = fs::read(format!("/proc/{pid}/environ"));
        self.match_environment(environment.ok().as_deref(), || {
            may_be_in_execve(process, boot_ticks())
        })
    }

    /// Whether `environment`, the content of `/proc/PID/environ`, contains the variables. `None`
    /// means that it cannot be read.
    fn match_environment(
        &self,
        environment: Option<&[u8]>,
        may_be_in_execve: impl FnOnce() -> bool,
    ) -> MarkerMatch {
        let Some(environment) = environment else {
            return MarkerMatch::No;
        };
        if environment.is_empty() {
            return if may_be_in_execve() {
                MarkerMatch::NotReadableYet
            } else {
                MarkerMatch::No
            };
        }
        let is_present = |(name, value): &(&str, String)| {
            let is_entry = |entry: &[u8]| {
                entry
                    .strip_prefix(name.as_bytes())
                    .and_then(|rest| rest.strip_prefix(b"="))
                    == Some(value.as_bytes())
            };
            environment.split(|&byte| byte == 0).any(is_entry)
        };
        if self.variables.iter().all(is_present) {
            MarkerMatch::Yes
        } else {
            MarkerMatch::No
        }
    }
}

/// Whether a process is recognized as a descendant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MarkerMatch {
    Yes,
    No,
    /// The process is probably in an `execve`, and its environment is not readable yet.
    NotReadableYet,
}

/// Whether the process may be in the middle of an `execve`. For that moment its environment reads
/// as empty, although the call that started it may already have returned in the parent. Kernel
/// threads have no environment either; they are children of kthreadd (PID 2).
fn may_be_in_execve(process: &ProcessStat, now: u64) -> bool {
    let age = now.saturating_sub(process.start_ticks);
    !process.is_zombie
        && age <= EXECVE_GRACE_SECONDS * clock_ticks_per_second()
        && process
            .parent
            .is_some_and(|parent| parent.as_raw_nonzero().get() != 2)
}

/// Ticks since the machine's boot, rounded down as the kernel does for the start of a process.
fn boot_ticks() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let [seconds, nanoseconds] =
        [now.tv_sec, now.tv_nsec].map(|part| u64::try_from(part).unwrap_or_default());
    let per_second = clock_ticks_per_second();
    seconds.saturating_mul(per_second) + nanoseconds.saturating_mul(per_second) / 1_000_000_000
}

/// The hard limit for real-time computing in the text of `/proc/PID/limits`; `None` if there is no
/// such limit.
fn real_time_limit(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max realtime timeout"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// When each killed process had started. The id alone is not enough: another process may have it by
/// now.
pub(super) type KilledProcesses = HashMap<Pid, u64>;

/// The running jobs of one tool, of one module, or of all MCP servers. Dropping this waits for
/// them, so that no process survives a service that ends.
pub struct OrphanReaper {
    /// Every running job holds a clone. The channel closes when the last one is dropped.
    pub(super) job_guard: Option<SyncSender<()>>,
    jobs_ended: Mutex<Receiver<()>>,
}

impl Default for OrphanReaper {
    /// A reaper without jobs.
    fn default() -> Self {
        let (ticket, ended) = sync_channel(0);
        Self {
            job_guard: Some(ticket),
            jobs_ended: Mutex::new(ended),
        }
    }
}

impl Drop for OrphanReaper {
    fn drop(&mut self) {
        self.job_guard = None;
        // No message is ever sent: `recv_timeout` returns when the last clone of the sender is
        // dropped.
        let ended = self
            .jobs_ended
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let _ = ended.recv_timeout(MAX_DROP_WAIT);
    }
}

/// The remaining work for one program.
pub(super) struct ReapJob {
    /// The program itself, if its exit status has not been read yet.
    pub child: Option<Child>,
    /// The id of the program and of its process group.
    pub leader: Pid,
    /// `None` if there is nothing to kill, only processes to reap.
    pub marker: Option<ProcessMarker>,
    /// Whether dead members of the group may have become our children.
    pub group_unreaped: bool,
    /// The processes killed so far.
    pub killed: KilledProcesses,
    /// Released when the job is done.
    pub _job_guard: Option<SyncSender<()>>,
}

impl ReapJob {
    /// Runs the job on a thread of its own. The runtime's blocking pool may be full; or it may be
    /// shutting down, and then it drops its queue.
    pub(super) fn spawn(self) {
        // If no thread can be created, `spawn` drops the closure, and the job runs here, on the
        // current thread.
        let _ = thread::Builder::new()
            .name("reaper".into())
            .spawn(move || drop(self));
    }

    /// Kills every marked process with its descendants. Reaps those that are dead and our children.
    fn kill_marked(&mut self) -> Remaining {
        let Some(marker) = &self.marker else {
            return Remaining::Nothing;
        };
        let mut remaining = Remaining::Nothing;
        for pid in list_pids(Path::new("/proc")) {
            // The program itself is already killed, and `reap_group` reaps it through its `Child`.
            if self.child.is_some() && pid == self.leader {
                continue;
            }
            let Some(process) = ProcessStat::read(pid) else {
                continue;
            };
            let marker_match = marker.match_process(pid, &process);
            if matches!(marker_match, MarkerMatch::NotReadableYet) {
                remaining = remaining.max(Remaining::Dying);
            } else if matches!(marker_match, MarkerMatch::Yes) {
                remaining = Remaining::MaybeMore;
                // A process may fork while we look for its descendants. So it is first stopped,
                // then its descendants are stopped and killed, and it is killed last. A process
                // that was forked in between has the marker, and the next round finds it.
                let _ = kill_process(pid, Signal::STOP);
                kill_descendants(pid, &mut self.killed);
                kill_and_record(pid, &process, &mut self.killed);
            } else if self.killed.get(&pid) == Some(&process.start_ticks) {
                let is_our_child = process.parent == Some(getpid());
                if process.is_zombie && is_our_child {
                    let _ = waitpid(Some(pid), WaitOptions::NOHANG);
                }
                // A zombie with another parent is that parent's to reap, so we do not wait for it.
                // As PID 1 we do: it may still be re-parented to us.
                if !process.is_zombie || is_our_child || getpid().is_init() {
                    remaining = remaining.max(Remaining::Dying);
                }
            }
        }
        remaining
    }

    /// Reaps the program and its group.
    fn reap_group(&mut self) -> Remaining {
        if let Some(child) = &mut self.child {
            if matches!(child.try_wait(), Ok(None)) {
                return Remaining::Dying;
            }
            self.child = None;
        }
        self.group_unreaped = self.group_unreaped && reap_group_members(self.leader);
        if self.group_unreaped {
            Remaining::Dying
        } else {
            Remaining::Nothing
        }
    }
}

/// Does the work of the job; see [`ReapJob::spawn`]. Rounds follow each other until one finds
/// nothing. After a round that has killed a process, the next one follows quickly, because the
/// process may have forked before. Otherwise the killed processes only have to end, and the pauses
/// grow.
impl Drop for ReapJob {
    fn drop(&mut self) {
        let (mut pause, mut waited) = (MIN_PAUSE, Duration::ZERO);
        while waited < MAX_REAP_TIME {
            pause = match self.kill_marked().max(self.reap_group()) {
                Remaining::Nothing => return,
                Remaining::Dying => MAX_PAUSE.min(pause * 2),
                Remaining::MaybeMore => MIN_PAUSE,
            };
            thread::sleep(pause);
            waited += pause;
        }
        tracing::warn!(leader = %self.leader, "processes of a tool do not end, or new ones keep appearing");
    }
}

/// The result of one round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Remaining {
    Nothing,
    /// A process was killed but is not gone yet, or it is not known yet whether a process is
    /// marked.
    Dying,
    /// A process was killed in this round; there may be more.
    MaybeMore,
}

/// Reaps the dead members of a group that are our children, including its leader. Returns whether
/// other children in the group live on.
pub(super) fn reap_group_members(leader: Pid) -> bool {
    loop {
        match waitpgid(leader, WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Kills the descendants of a process, as far as their parents still live.
pub(super) fn kill_descendants(ancestor: Pid, killed: &mut KilledProcesses) {
    // All descendants are found and stopped before the first is killed. When a process dies, its
    // children get another parent, and this search would miss them.
    for (pid, process) in signal_descendants(ancestor, Signal::STOP) {
        kill_and_record(pid, &process, killed);
    }
}

/// Sends the signal to the descendants of a process, as far as their parents still live.
pub(super) fn signal_descendants(ancestor: Pid, signal: Signal) -> Vec<(Pid, ProcessStat)> {
    let mut found: Vec<(Pid, ProcessStat)> = Vec::new();
    let mut parents = vec![ancestor];
    while let Some(parent) = parents.pop() {
        for thread in list_pids(Path::new(&format!("/proc/{parent}/task"))) {
            let children = fs::read_to_string(format!("/proc/{parent}/task/{thread}/children"));
            for child in children
                .unwrap_or_default()
                .split_whitespace()
                .filter_map(parse_pid)
            {
                if found.len() < MAX_DESCENDANTS
                    && let Some(process) = ProcessStat::read(child)
                {
                    let _ = kill_process(child, signal);
                    found.push((child, process));
                    parents.push(child);
                }
            }
        }
    }
    found
}

fn kill_and_record(pid: Pid, process: &ProcessStat, killed: &mut KilledProcesses) {
    // The process may have ended meanwhile, or we may lack the permission. The next round finds it
    // if it still lives.
    let _ = kill_process(pid, Signal::KILL);
    killed.insert(pid, process.start_ticks);
}

/// The needed fields of `/proc/PID/stat`.
pub(super) struct ProcessStat {
    is_zombie: bool,
    parent: Option<Pid>,
    /// Ticks since the machine's boot.
    start_ticks: u64,
}

impl ProcessStat {
    fn read(pid: Pid) -> Option<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the program's name in parentheses. The name may contain any
        // character, so the fields are counted from the last `)`.
        let (_, rest) = std::str::from_utf8(&stat[stat.iter().rposition(|&byte| byte == b')')?..])
            .ok()?
            .split_at(1);
        let mut fields = rest.split_whitespace();
        let zombie = matches!(fields.next()?, "Z" | "X");
        let parent = parse_pid(fields.next()?);
        Some(Self {
            is_zombie: zombie,
            parent,
            start_ticks: fields.nth(17)?.parse().ok()?,
        })
    }
}

/// The process ids among the names in a folder.
fn list_pids(folder: &Path) -> impl Iterator<Item = Pid> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| parse_pid(entry.file_name().to_str()?))
}

fn parse_pid(text: &str) -> Option<Pid> {
    text.parse().ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_marker() -> ProcessMarker {
        ProcessMarker::new([
            ("TOOLCRIB_A", "1".to_owned()),
            ("TOOLCRIB_B", "2".to_owned()),
        ])
    }

    #[test]
    fn environment_must_hold_all_marker_variables() {
        for (environment, expected) in [
            (
                Some("TOOLCRIB_A=1\0PATH=/bin\0TOOLCRIB_B=2\0"),
                MarkerMatch::Yes,
            ),
            (Some("TOOLCRIB_A=1\0TOOLCRIB_B=22\0"), MarkerMatch::No),
            (Some("TOOLCRIB_A=1\0"), MarkerMatch::No),
            (Some("X=TOOLCRIB_A=1\0TOOLCRIB_B=2\0"), MarkerMatch::No),
            (None, MarkerMatch::No),
        ] {
            assert_eq!(
                test_marker().match_environment(environment.map(str::as_bytes), || true),
                expected,
                "{environment:?}"
            );
        }
    }

    #[test]
    fn empty_environment_of_new_process_is_undecided() {
        assert_eq!(
            test_marker().match_environment(Some(b""), || true),
            MarkerMatch::NotReadableYet
        );
        assert_eq!(
            test_marker().match_environment(Some(b""), || false),
            MarkerMatch::No
        );
        let (ticks, parent) = (clock_ticks_per_second(), Pid::from_raw(100));
        let process = |zombie, parent, started| ProcessStat {
            is_zombie: zombie,
            parent,
            start_ticks: started * ticks,
        };
        for (process, expected) in [
            (process(false, parent, 999), true),
            (process(false, parent, 998), true),
            (process(false, parent, 997), false),
            (process(true, parent, 999), false),
            (process(false, Pid::from_raw(2), 999), false),
            (process(false, None, 999), false),
        ] {
            assert_eq!(
                may_be_in_execve(&process, 1000 * ticks),
                expected,
                "started at {}",
                process.start_ticks
            );
        }
    }

    #[test]
    fn older_processes_and_zombies_never_match() {
        let mut process = ProcessStat::read(getpid()).unwrap();
        assert!(process.start_ticks <= boot_ticks());
        // A marker without variables would match every process.
        let is_on = |process: &ProcessStat, created_at| {
            ProcessMarker {
                created_at,
                ..ProcessMarker::new([])
            }
            .match_process(getpid(), process)
        };
        assert_eq!(is_on(&process, process.start_ticks), MarkerMatch::Yes);
        assert_eq!(is_on(&process, process.start_ticks + 1), MarkerMatch::No);
        process.is_zombie = true;
        assert_eq!(is_on(&process, process.start_ticks), MarkerMatch::No);
    }

    #[test]
    fn markers_have_distinct_limit_values() {
        let (limit, other) = (
            test_marker().limit_value,
            ProcessMarker::new([("TOOLCRIB_A", "1".to_owned())]).limit_value,
        );
        assert_eq!(limit, test_marker().limit_value);
        assert!(limit != other && limit >= 1 << 61 && other >= 1 << 61 && limit < 1 << 62);
        let limits = |soft: &str, hard: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                     Max nice priority         0                    0                    \n\
                     Max realtime timeout      {soft:<20} {hard:<20} us        \n"
            )
        };
        assert_eq!(
            real_time_limit(&limits("5", &limit.to_string())),
            Some(limit)
        );
        assert_eq!(real_time_limit(&limits("unlimited", "unlimited")), None);
        assert_eq!(real_time_limit(""), None);
    }
}
