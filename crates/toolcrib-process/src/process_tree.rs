//! Runs a program; when the program ends, everything that it started ends too.
//!
//! The program leads a process group of its own. Killing the group ends most processes at once;
//! `orphan_reaper` then finds the processes that have left the group.

use std::collections::HashMap;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::mpsc::SyncSender;

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::confine;
use crate::orphan_reaper::{
    OrphanReaper, ProcessMarker, ReapJob, kill_descendants, reap_group_members, signal_descendants,
};
use crate::sandbox::Launch;

/// The signals that usually end a program. An exit status above 128 may have another meaning.
const FATAL_SIGNALS: [Signal; 10] = [
    Signal::ILL,
    Signal::ABORT,
    Signal::BUS,
    Signal::FPE,
    Signal::KILL,
    Signal::SEGV,
    Signal::TERM,
    Signal::XCPU,
    Signal::XFSZ,
    Signal::SYS,
];

/// A running program. Dropping it ends the program and everything that it started.
pub struct ProcessTree {
    /// `None` after the program has ended and its status has been read.
    child: Option<Child>,
    /// The id of the program and of its process group.
    leader: Pid,
    /// `None` if no process has left the group.
    marker: Option<ProcessMarker>,
    /// Whether dead members of the group may have become our children, so that we must reap them.
    group_unreaped: bool,
    job_guard: Option<SyncSender<()>>,
    /// Whether bubblewrap runs the program.
    is_wrapped: bool,
    /// The program's temporary folder.
    _temporary: Option<TempDir>,
}

impl ProcessTree {
    /// Starts the program with its marker, confined, and as the leader of a new group. `command` is
    /// [`Launch::command`] with arguments and variables.
    pub fn spawn(
        command: &mut Command,
        marker: ProcessMarker,
        reaper: &OrphanReaper,
        launch: Launch,
    ) -> io::Result<Self> {
        marker.apply_to(command);
        launch.set_variables(command);
        launch.check_program()?;
        let is_wrapped = launch.is_wrapped();
        let (sandbox, temporary) = launch.into_parts();
        let (child, leader) =
            confine::spawn_confined(command.process_group(0), marker.limit_value, sandbox)?;
        Ok(Self {
            child: Some(child),
            leader,
            marker: Some(marker),
            group_unreaped: true,
            job_guard: reaper.job_guard.clone(),
            is_wrapped,
            _temporary: temporary,
        })
    }

    /// The pipes to and from the program. A second call returns `None` for each.
    pub fn take_pipes(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        match &mut self.child {
            Some(child) => (child.stdin.take(), child.stdout.take(), child.stderr.take()),
            None => (None, None, None),
        }
    }

    /// The program's process id.
    pub fn pid(&self) -> Pid {
        self.leader
    }

    /// Whether the program has ended. Does not wait.
    pub fn has_ended(&mut self) -> bool {
        self.child
            .as_mut()
            .is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Waits for the end of the program, then kills the other members of its group.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let Some(child) = &mut self.child else {
            return Err(io::Error::other("the program has ended before"));
        };
        let status = child.wait().await?;
        self.child = None;
        // The leader's id is free now, but the kernel assigns ids in ascending order. So no other
        // process has this id yet, and the kill hits only this group.
        let _ = kill_process_group(self.leader, Signal::KILL);
        self.group_unreaped = reap_group_members(self.leader);
        // Bubblewrap ends with the number of the signal that ended the program, as a shell does.
        let signal = status.code().map_or(0, |code| code - 128);
        let is_signal = FATAL_SIGNALS.map(Signal::as_raw).contains(&signal);
        match self.is_wrapped && is_signal {
            true => Ok(ExitStatus::from_raw(signal)),
            false => Ok(status),
        }
    }

    /// Asks the program and what it started to end, by SIGTERM.
    pub fn terminate(&self) {
        match self.is_wrapped {
            // Bubblewrap itself would end at once, and the program with it.
            true => drop(signal_descendants(self.leader, Signal::TERM)),
            false => {
                let _ = kill_process_group(self.leader, Signal::TERM);
            }
        }
    }

    /// Ends the tree of a program that has ended and whose pipes are closed. Mostly no process is left,
    /// and a short look shows that. Otherwise the drop searches the whole machine.
    pub fn finish(mut self) {
        let marker = self.marker.take();
        self.marker = marker.filter(|marker| marker.may_be_in_use(self.leader));
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        let mut killed = HashMap::new();
        if self.child.is_some() {
            // Members that left the group come first, while their parents are stopped but alive.
            // When their parents are dead, no path leads from the leader to them.
            let _ = kill_process_group(self.leader, Signal::STOP);
            kill_descendants(self.leader, &mut killed);
            let _ = kill_process_group(self.leader, Signal::KILL);
        }
        if self.child.is_some() || self.marker.is_some() || self.group_unreaped {
            let (child, marker) = (self.child.take(), self.marker.take());
            ReapJob {
                child,
                leader: self.leader,
                marker,
                group_unreaped: self.group_unreaped,
                killed,
                _job_guard: self.job_guard.take(),
            }
            .spawn();
        }
    }
}
