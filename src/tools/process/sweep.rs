//! Finds, kills and reaps the processes that a program has left behind, until none remains.
//!
//! A process that moved to another session is found in three ways:
//!
//! - as a descendant, while its parents live;
//! - by environment variables that every descendant inherits, in `/proc/PID/environ`;
//! - by a resource limit that every descendant inherits too, in `/proc/PID/limits`.
//!
//! The limit is `RLIMIT_RTTIME`, for real-time computing. Its value is a number that is unique to the program, and so
//! high that it limits nothing. A process escapes only if it left the group, outlived its parent, cleared its
//! environment and changed that limit. Only a PID namespace would catch it.
//!
//! We do not become a subreaper (`PR_SET_CHILD_SUBREAPER`). It is a setting of the whole process, which belongs to
//! the embedding program. Unknown orphans would be re-parented to us, and reaping them with `waitpid(-1)` would steal
//! exit statuses that tokio waits for. Without this setting, orphans go to init, which reaps them; in a container,
//! init is a process of ours (`init.rs`). If an embedding program is PID 1 without our init, we reap what we have
//! killed, each process by its own id.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpgid, waitpid};
use rustix::time::{ClockId, clock_gettime};
use tokio::process::{Child, Command};

use crate::call::json::digest;

/// How long a sweep waits in total, if it finds a process in every round.
const LONGEST: Duration = Duration::from_secs(5);
/// How long dropping a [`Sweeps`] waits for its running sweeps.
const LAST_WAIT: Duration = Duration::from_secs(2);
/// The most descendants that one round kills; the next round finds the others.
const MOST: usize = 1024;
/// A process younger than this, in seconds, may still be in the `execve` of its program.
const YOUNG: u64 = 2;
/// The pause after a round that has killed something.
const SHORT: Duration = Duration::from_millis(1);
/// The longest pause while killed processes have not ended yet.
const LONG: Duration = Duration::from_millis(50);

/// How a process is recognized as a descendant: variables in its environment, each with its value. The combination
/// must be unique to one program.
pub(in crate::tools) struct Mark {
    variables: Vec<(&'static str, String)>,
    /// The value of [`Mark::family`]. It is compared with the limit of every process on the machine.
    family: u64,
    /// The time of creation, in ticks since the machine's boot. A process that started earlier is not a descendant.
    born: u64,
}

impl Mark {
    /// A mark with these variables, for a program that will be started.
    pub(in crate::tools) fn new(variables: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        const HIGH: u64 = 1 << 61;
        let variables: Vec<_> = variables.into_iter().collect();
        let digest = digest(variables.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]));
        let random = digest.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte));
        Self { variables, family: HIGH | (random % HIGH), born: ticks() }
    }

    /// Adds the variables to a program that will be started.
    pub(super) fn put_on(&self, command: &mut Command) {
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
    }

    /// The mark as the value of a resource limit. In microseconds it is more than 70,000 years, so it limits nothing.
    pub(super) fn family(&self) -> u64 {
        self.family
    }

    fn is_on(&self, pid: Pid, process: &Process) -> Marked {
        // A zombie still has its limits until its parent reaps it.
        if process.zombie || process.started < self.born {
            return Marked::No;
        }
        let limits = fs::read_to_string(format!("/proc/{pid}/limits"));
        if limits.is_ok_and(|limits| real_time_limit(&limits) == Some(self.family)) {
            return Marked::Yes;
        }
        let environment = fs::read(format!("/proc/{pid}/environ"));
        self.is_in(environment.ok().as_deref(), || is_becoming(process, ticks()))
    }

    /// Whether `environment`, the content of `/proc/PID/environ`, contains the variables. `None` means that it cannot
    /// be read.
    fn is_in(&self, environment: Option<&[u8]>, is_becoming: impl FnOnce() -> bool) -> Marked {
        let Some(environment) = environment else { return Marked::No };
        if environment.is_empty() {
            return if is_becoming() { Marked::NotSeenYet } else { Marked::No };
        }
        let has = |(name, value): &(&str, String)| {
            let own = |entry: &[u8]| {
                entry.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")) == Some(value.as_bytes())
            };
            environment.split(|&byte| byte == 0).any(own)
        };
        if self.variables.iter().all(has) { Marked::Yes } else { Marked::No }
    }
}

/// Whether a process is recognized as a descendant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marked {
    Yes,
    No,
    /// The process is probably in an `execve`, and its environment is not readable yet.
    NotSeenYet,
}

/// Whether the process may be in the middle of an `execve`. For that moment its environment reads as empty, although
/// the call that started it may already have returned in the parent. Kernel threads have no environment either; they
/// are children of kthreadd (PID 2).
fn is_becoming(process: &Process, now: u64) -> bool {
    let age = now.saturating_sub(process.started);
    !process.zombie
        && age <= YOUNG * clock_ticks_per_second()
        && process.parent.is_some_and(|parent| parent.as_raw_nonzero().get() != 2)
}

/// Ticks since the machine's boot, rounded down as the kernel does for the start of a process.
fn ticks() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let [seconds, nanoseconds] = [now.tv_sec, now.tv_nsec].map(|part| u64::try_from(part).unwrap_or_default());
    let per_second = clock_ticks_per_second();
    seconds.saturating_mul(per_second) + nanoseconds.saturating_mul(per_second) / 1_000_000_000
}

/// The hard limit for real-time computing in the text of `/proc/PID/limits`; `None` if there is no such limit.
fn real_time_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max realtime timeout"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// When each killed process had started. The id alone is not enough: another process may have it by now.
pub(super) type Killed = HashMap<Pid, u64>;

/// The running sweeps of one tool, of one module, or of all MCP servers. Dropping this waits for them, so that no
/// process survives a service that ends.
pub(in crate::tools) struct Sweeps {
    /// Every running sweep holds a clone. The channel closes when the last one is dropped.
    ticket: Option<SyncSender<()>>,
    ended: Mutex<Receiver<()>>,
}

impl Sweeps {
    pub(in crate::tools) fn new() -> Self {
        let (ticket, ended) = sync_channel(0);
        Self { ticket: Some(ticket), ended: Mutex::new(ended) }
    }

    /// A clone for a sweep that may become necessary.
    pub(super) fn ticket(&self) -> Option<SyncSender<()>> {
        self.ticket.clone()
    }
}

impl Drop for Sweeps {
    fn drop(&mut self) {
        self.ticket = None;
        // No message is ever sent: `recv_timeout` returns when the last clone of the sender is dropped.
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = ended.recv_timeout(LAST_WAIT);
    }
}

/// The remaining work for one program.
pub(super) struct Sweep {
    /// The program itself, if its exit status has not been read yet.
    pub child: Option<Child>,
    /// The id of the program and of its process group.
    pub leader: Pid,
    /// `None` if there is nothing to kill, only processes to reap.
    pub mark: Option<Mark>,
    /// Whether dead members of the group may have become our children.
    pub group_left: bool,
    /// The processes killed so far.
    pub killed: Killed,
    /// Released when the sweep is done.
    pub _ticket: Option<SyncSender<()>>,
}

impl Sweep {
    /// Runs the sweep on a thread of its own. The runtime's blocking pool may be full; or it may be shutting down,
    /// and then it drops its queue.
    pub(super) fn start(self) {
        // If no thread can be created, `spawn` drops the closure, and the sweep runs here, on the current thread.
        let _ = thread::Builder::new().name("sweep".into()).spawn(move || drop(self));
    }

    /// Kills every marked process with its descendants. Reaps those that are dead and our children.
    fn kill_marked(&mut self) -> Left {
        let Some(mark) = &self.mark else {
            return Left::Nothing;
        };
        let mut left = Left::Nothing;
        for pid in numbers(Path::new("/proc")) {
            // The program itself is already killed, and `collect` reaps it through its `Child`.
            if self.child.is_some() && pid == self.leader {
                continue;
            }
            let Some(process) = Process::read(pid) else { continue };
            let marked = mark.is_on(pid, &process);
            if matches!(marked, Marked::NotSeenYet) {
                left = left.max(Left::Dead);
            } else if matches!(marked, Marked::Yes) {
                left = Left::Alive;
                // A process may fork while we look for its descendants. So it is first stopped, then its descendants
                // are stopped and killed, and it is killed last. A process that was forked in between carries the
                // mark, and the next round finds it.
                let _ = kill_process(pid, Signal::STOP);
                kill_descendants(pid, &mut self.killed);
                kill(pid, &process, &mut self.killed);
            } else if self.killed.get(&pid) == Some(&process.started) {
                let ours = process.parent == Some(getpid());
                if process.zombie && ours {
                    let _ = waitpid(Some(pid), WaitOptions::NOHANG);
                }
                // A zombie with another parent is that parent's to reap, so we do not wait for it. As PID 1 we do: it
                // may still be re-parented to us.
                if !process.zombie || ours || getpid().is_init() {
                    left = left.max(Left::Dead);
                }
            }
        }
        left
    }

    /// Reaps the program and its group.
    fn collect(&mut self) -> Left {
        if let Some(child) = &mut self.child {
            if matches!(child.try_wait(), Ok(None)) {
                return Left::Dead;
            }
            self.child = None;
        }
        self.group_left = self.group_left && collect_group(self.leader);
        if self.group_left { Left::Dead } else { Left::Nothing }
    }
}

/// Does the work of the sweep; see [`Sweep::start`]. Rounds follow each other until one finds nothing. After a round
/// that has killed a process, the next one follows quickly, because the process may have forked before. Otherwise the
/// killed processes only have to end, and the pauses grow.
impl Drop for Sweep {
    fn drop(&mut self) {
        let (mut pause, mut waited) = (SHORT, Duration::ZERO);
        while waited < LONGEST {
            pause = match self.kill_marked().max(self.collect()) {
                Left::Nothing => return,
                Left::Dead => LONG.min(pause * 2),
                Left::Alive => SHORT,
            };
            thread::sleep(pause);
            waited += pause;
        }
        tracing::warn!(leader = %self.leader, "processes of a tool do not die, or come again and again");
    }
}

/// The result of one round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    Nothing,
    /// A process was killed but is not gone yet, or it is not known yet whether a process is marked.
    Dead,
    /// A process was killed in this round; there may be more.
    Alive,
}

/// Reaps the dead members of a group that are our children, including its leader. Returns whether other children in
/// the group live on.
pub(super) fn collect_group(leader: Pid) -> bool {
    loop {
        match waitpgid(leader, WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Kills the descendants of a process, as far as their parents still live.
pub(super) fn kill_descendants(of: Pid, killed: &mut Killed) {
    // All descendants are found and stopped before the first is killed. When a process dies, its children get another
    // parent, and this search would miss them.
    let mut found: Vec<(Pid, Process)> = Vec::new();
    let mut parents = vec![of];
    while let Some(parent) = parents.pop() {
        for thread in numbers(Path::new(&format!("/proc/{parent}/task"))) {
            let children = fs::read_to_string(format!("/proc/{parent}/task/{thread}/children"));
            for child in children.unwrap_or_default().split_whitespace().filter_map(number) {
                if found.len() < MOST
                    && let Some(process) = Process::read(child)
                {
                    let _ = kill_process(child, Signal::STOP);
                    found.push((child, process));
                    parents.push(child);
                }
            }
        }
    }
    for (pid, process) in found {
        kill(pid, &process, killed);
    }
}

fn kill(pid: Pid, process: &Process, killed: &mut Killed) {
    // The process may have ended meanwhile, or we may lack the permission. The next round finds it if it still lives.
    let _ = kill_process(pid, Signal::KILL);
    killed.insert(pid, process.started);
}

/// The needed fields of `/proc/PID/stat`.
struct Process {
    zombie: bool,
    parent: Option<Pid>,
    /// Ticks since the machine's boot.
    started: u64,
}

impl Process {
    fn read(pid: Pid) -> Option<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the program's name in parentheses. The name may contain any character, so the fields
        // are counted from the last `)`.
        let (_, rest) = std::str::from_utf8(&stat[stat.iter().rposition(|&byte| byte == b')')?..]).ok()?.split_at(1);
        let mut fields = rest.split_whitespace();
        let zombie = matches!(fields.next()?, "Z" | "X");
        let parent = number(fields.next()?);
        Some(Self { zombie, parent, started: fields.nth(17)?.parse().ok()? })
    }
}

/// The process ids among the names in a folder.
fn numbers(folder: &Path) -> impl Iterator<Item = Pid> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| number(entry.file_name().to_str()?))
}

fn number(text: &str) -> Option<Pid> {
    text.parse().ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> Mark {
        Mark::new([("TOOLCRIB_A", "1".to_owned()), ("TOOLCRIB_B", "2".to_owned())])
    }

    #[test]
    fn environments_show_all_of_a_mark() {
        for (environment, expected) in [
            (Some("TOOLCRIB_A=1\0PATH=/bin\0TOOLCRIB_B=2\0"), Marked::Yes),
            (Some("TOOLCRIB_A=1\0TOOLCRIB_B=22\0"), Marked::No),
            (Some("TOOLCRIB_A=1\0"), Marked::No),
            (Some("X=TOOLCRIB_A=1\0TOOLCRIB_B=2\0"), Marked::No),
            (None, Marked::No),
        ] {
            assert_eq!(mark().is_in(environment.map(str::as_bytes), || true), expected, "{environment:?}");
        }
    }

    #[test]
    fn empty_environments_of_new_programs_wait() {
        assert_eq!(mark().is_in(Some(b""), || true), Marked::NotSeenYet);
        assert_eq!(mark().is_in(Some(b""), || false), Marked::No);
        let (ticks, parent) = (clock_ticks_per_second(), Pid::from_raw(100));
        let process = |zombie, parent, started| Process { zombie, parent, started: started * ticks };
        for (process, expected) in [
            (process(false, parent, 999), true),
            (process(false, parent, 998), true),
            (process(false, parent, 997), false),
            (process(true, parent, 999), false),
            (process(false, Pid::from_raw(2), 999), false),
            (process(false, None, 999), false),
        ] {
            assert_eq!(is_becoming(&process, 1000 * ticks), expected, "started at {}", process.started);
        }
    }

    #[test]
    fn the_old_and_the_dead_bear_no_mark() {
        let mut process = Process::read(getpid()).unwrap();
        assert!(process.started <= ticks());
        // A mark without variables would match every process.
        let is_on = |process: &Process, born| Mark { born, ..Mark::new([]) }.is_on(getpid(), process);
        assert_eq!(is_on(&process, process.started), Marked::Yes);
        assert_eq!(is_on(&process, process.started + 1), Marked::No);
        process.zombie = true;
        assert_eq!(is_on(&process, process.started), Marked::No);
    }

    #[test]
    fn families_have_limits_of_their_own() {
        let (family, other) = (mark().family(), Mark::new([("TOOLCRIB_A", "1".to_owned())]).family());
        assert_eq!(family, mark().family());
        assert!(family != other && family >= 1 << 61 && other >= 1 << 61 && family < 1 << 62);
        let limits = |soft: &str, hard: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                     Max nice priority         0                    0                    \n\
                     Max realtime timeout      {soft:<20} {hard:<20} us        \n"
            )
        };
        assert_eq!(real_time_limit(&limits("5", &family.to_string())), Some(family));
        assert_eq!(real_time_limit(&limits("unlimited", "unlimited")), None);
        assert_eq!(real_time_limit(""), None);
    }
}
