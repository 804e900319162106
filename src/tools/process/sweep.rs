//! Finds, kills and collects what a program has left behind, until nothing is left.
//!
//! What moved into a session of its own is found in three ways: as a descendant while its parents live, by the
//! variables that every descendant inherits and that `/proc/PID/environ` shows, and by a resource limit that it inherits
//! too and that `/proc/PID/limits` shows. The limit (`RLIMIT_RTTIME`) is that of real-time computing; its value is a
//! number of the program's own and so high that it limits nothing. Only a process that left the group, outlived its
//! parent, cleared its environment and changed that limit gets away; that takes a PID namespace to catch.
//!
//! We do not make ourselves a subreaper (`PR_SET_CHILD_SUBREAPER`). It is a setting of the whole process, which belongs
//! to the program that embeds us. Orphans of all kinds would come to us without a word on whose they are, and would
//! stay zombies unless we collected children that we do not know, which takes away exit statuses that tokio or somebody
//! else waits for. Left alone, orphans go to init, whose work this is; in a container that is a process of our own
//! (`init.rs`). Where an embedding program is PID 1 without it we collect what we have killed, each by its own id.

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

/// All pauses of a sweep together, when it finds something every time.
const LONGEST: Duration = Duration::from_secs(5);
/// How long the end of a tool waits for its sweeps.
const LAST_WAIT: Duration = Duration::from_secs(2);
/// Most descendants that are killed at once; the next round finds the others.
const MOST: usize = 1024;
/// A process of this age, in seconds, may still be about to become the program that it is started as.
const YOUNG: u64 = 2;
/// Between two rounds, when the last one has killed something.
const SHORT: Duration = Duration::from_millis(1);
/// At most, while the dead are waited for.
const LONG: Duration = Duration::from_millis(50);

/// How a process is known as a descendant: variables that its environment holds, each with its value. All together must
/// be one program's alone.
pub(in crate::tools) struct Mark {
    variables: Vec<(&'static str, String)>,
    /// See [`Mark::family`]. It is compared with the limit of every process on the machine.
    family: u64,
    /// In ticks since the machine's start. What began before is no descendant.
    born: u64,
}

impl Mark {
    /// A mark of these variables, for a program that is to be started.
    pub(in crate::tools) fn new(variables: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        const HIGH: u64 = 1 << 61;
        let variables: Vec<_> = variables.into_iter().collect();
        let digest = digest(variables.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]));
        let random = digest.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte));
        Self { variables, family: HIGH | (random % HIGH), born: ticks() }
    }

    /// Puts it on a program that is to be started.
    pub(super) fn put_on(&self, command: &mut Command) {
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
    }

    /// The mark as a number for a resource limit: without meaning as a limit, since it is hundreds of centuries in
    /// microseconds.
    pub(super) fn family(&self) -> u64 {
        self.family
    }

    fn is_on(&self, pid: Pid, process: &Process) -> Marked {
        // The dead still have their limits, until somebody collects them.
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

    /// Whether it is in what was read of a process's environment; `None`: that cannot be read.
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

/// Whether a process is known as a descendant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marked {
    Yes,
    No,
    /// It has just become another program, and its environment is not there yet.
    NotSeenYet,
}

/// Whether the process may be in the middle of an `execve`: for that moment its environment reads as empty, and whoever
/// started it may already take it for the new program. Threads of the kernel have none either; kthreadd (2) is their parent.
fn is_becoming(process: &Process, now: u64) -> bool {
    let age = now.saturating_sub(process.started);
    !process.zombie
        && age <= YOUNG * clock_ticks_per_second()
        && process.parent.is_some_and(|parent| parent.as_raw_nonzero().get() != 2)
}

/// Ticks since the machine's start, rounded down as the kernel does for the start of a process.
fn ticks() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let [seconds, nanoseconds] = [now.tv_sec, now.tv_nsec].map(|part| u64::try_from(part).unwrap_or_default());
    let per_second = clock_ticks_per_second();
    seconds.saturating_mul(per_second) + nanoseconds.saturating_mul(per_second) / 1_000_000_000
}

/// The hard limit of real-time computing in `/proc/PID/limits`; `None`: there is none.
fn real_time_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max realtime timeout"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// When each killed process had started: an id alone might by now be another's.
pub(super) type Killed = HashMap<Pid, u64>;

/// The sweeps of one tool or module, or of all MCP servers. Dropping it waits for them: a service that ends leaves nothing half swept.
pub(in crate::tools) struct Sweeps {
    /// Every running sweep holds a copy.
    ticket: Option<SyncSender<()>>,
    ended: Mutex<Receiver<()>>,
}

impl Sweeps {
    /// None yet.
    pub(in crate::tools) fn new() -> Self {
        let (ticket, ended) = sync_channel(0);
        Self { ticket: Some(ticket), ended: Mutex::new(ended) }
    }

    /// To be held by a sweep that may come.
    pub(super) fn ticket(&self) -> Option<SyncSender<()>> {
        self.ticket.clone()
    }
}

impl Drop for Sweeps {
    fn drop(&mut self) {
        self.ticket = None;
        // Nothing is ever sent: this ends when the last copy is dropped.
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = ended.recv_timeout(LAST_WAIT);
    }
}

/// What is left to do for one program.
pub(super) struct Sweep {
    /// The program itself, if its exit is not read yet.
    pub child: Option<Child>,
    /// Its id, and its group's.
    pub leader: Pid,
    /// `None`: only to collect, nothing to kill.
    pub mark: Option<Mark>,
    /// Dead members of the group may have come to us.
    pub group_left: bool,
    /// What was killed so far.
    pub killed: Killed,
    /// Held until this is over.
    pub _ticket: Option<SyncSender<()>>,
}

impl Sweep {
    /// Sweeps on a thread of its own: the runtime's pool may be full, or stopping and then drop what it was given.
    pub(super) fn start(self) {
        // Where there is no thread to be had, the closure is dropped here, and the sweep happens here.
        let _ = thread::Builder::new().name("sweep".into()).spawn(move || drop(self));
    }

    /// Kills every marked process with its descendants, and collects those that are dead and ours.
    fn kill_marked(&mut self) -> Left {
        let Some(mark) = &self.mark else {
            return Left::Nothing;
        };
        let mut left = Left::Nothing;
        for pid in numbers(Path::new("/proc")) {
            // The program itself is killed already, and tokio's to collect.
            if self.child.is_some() && pid == self.leader {
                continue;
            }
            let Some(process) = Process::read(pid) else { continue };
            let marked = mark.is_on(pid, &process);
            if matches!(marked, Marked::NotSeenYet) {
                left = left.max(Left::Dead);
            } else if matches!(marked, Marked::Yes) {
                left = Left::Alive;
                // Stopped, so that it starts nothing more while its descendants are looked for.
                let _ = kill_process(pid, Signal::STOP);
                kill_descendants(pid, &mut self.killed);
                kill(pid, &process, &mut self.killed);
            } else if self.killed.get(&pid) == Some(&process.started) {
                let ours = process.parent == Some(getpid());
                if process.zombie && ours {
                    let _ = waitpid(Some(pid), WaitOptions::NOHANG);
                }
                // Somebody else's zombie is nothing to wait for, unless it may still become ours.
                if !process.zombie || ours || getpid().is_init() {
                    left = left.max(Left::Dead);
                }
            }
        }
        left
    }

    /// Collects the program and its group.
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

/// The work itself; see [`Sweep::start`].
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

/// What a round has found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    Nothing,
    /// Killed, but not gone yet; or there is one that cannot be told yet.
    Dead,
    /// Killed just now; there may be more.
    Alive,
}

/// Collects dead members of a group that have become our children, its leader included; whether others live on.
pub(super) fn collect_group(leader: Pid) -> bool {
    loop {
        match waitpgid(leader, WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Kills what the process has started and what those have started, as far as their parents still live.
pub(super) fn kill_descendants(of: Pid, killed: &mut Killed) {
    // All are found, and stopped, before one is killed: the children of the dead are somebody else's.
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
    // It may have ended meanwhile, or not be ours to kill: the next round sees.
    let _ = kill_process(pid, Signal::KILL);
    killed.insert(pid, process.started);
}

/// What `/proc/PID/stat` says of a process.
struct Process {
    zombie: bool,
    parent: Option<Pid>,
    /// Ticks since the machine's start.
    started: u64,
}

impl Process {
    fn read(pid: Pid) -> Option<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the program's name in brackets, and the name may hold anything.
        let (_, rest) = std::str::from_utf8(&stat[stat.iter().rposition(|&byte| byte == b')')?..]).ok()?.split_at(1);
        let mut fields = rest.split_whitespace();
        let zombie = matches!(fields.next()?, "Z" | "X");
        let parent = number(fields.next()?);
        Some(Self { zombie, parent, started: fields.nth(17)?.parse().ok()? })
    }
}

/// The entries of a folder that are numbers.
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
        // Without variables it would be on every process.
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
