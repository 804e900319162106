//! A running program, whose end is the end of all that it started.
//!
//! The program leads a process group of its own. Killing the group ends the ordinary ones at once; `sweep` then looks
//! for those that have left it.

use std::collections::HashMap;
use std::io;
use std::process::ExitStatus;
use std::sync::mpsc::SyncSender;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::confine;

use super::sweep::{Mark, Sweep, Sweeps, collect_group, kill_descendants};

/// A running program. Unless it was released, dropping it ends the program and all that it started.
pub(in crate::tools) struct ProcessTree {
    /// `None` once it has ended and its status is read.
    child: Option<Child>,
    /// The program's process id, and its group's.
    leader: Pid,
    /// `None` once what ran away may go on.
    mark: Option<Mark>,
    /// Dead members of the group have come to us and are to be collected.
    group_left: bool,
    ticket: Option<SyncSender<()>>,
}

impl ProcessTree {
    /// Starts the program, marked, confined and as the leader of a new group.
    pub(in crate::tools) fn spawn(command: &mut Command, mark: Mark, sweeps: &Sweeps) -> io::Result<Self> {
        mark.put_on(command);
        let child = confine::spawn(command.process_group(0), mark.family())?;
        let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let leader = id.ok_or_else(|| io::Error::other("the program has no process id"))?;
        Ok(Self { child: Some(child), leader, mark: Some(mark), group_left: true, ticket: sweeps.ticket() })
    }

    /// The pipes to and from the program, once.
    pub(in crate::tools) fn pipes(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        match &mut self.child {
            Some(child) => (child.stdin.take(), child.stdout.take(), child.stderr.take()),
            None => (None, None, None),
        }
    }

    /// The program's process id.
    pub(in crate::tools) fn id(&self) -> Pid {
        self.leader
    }

    /// Whether the program has ended; asks the system and waits for nothing.
    pub(in crate::tools) fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Waits for the end of the program, then ends what is left of its group.
    pub(in crate::tools) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let Some(child) = &mut self.child else {
            return Err(io::Error::other("the program has ended before"));
        };
        let status = child.wait().await?;
        self.child = None;
        // The leader's id is free now, but ids are given out in turn: nobody else can have this one yet.
        let _ = kill_process_group(self.leader, Signal::KILL);
        self.group_left = collect_group(self.leader);
        Ok(status)
    }

    /// The program has ended and its pipes are closed: what made itself independent of both may go on.
    pub(in crate::tools) fn release(mut self) {
        self.mark = None;
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        let mut killed = HashMap::new();
        if self.child.is_some() {
            // First those that have left the group: once their parents are dead, nothing leads to them from here.
            let _ = kill_process_group(self.leader, Signal::STOP);
            kill_descendants(self.leader, &mut killed);
            let _ = kill_process_group(self.leader, Signal::KILL);
        }
        if self.child.is_some() || self.mark.is_some() || self.group_left {
            let (child, mark) = (self.child.take(), self.mark.take());
            Sweep {
                child,
                leader: self.leader,
                mark,
                group_left: self.group_left,
                killed,
                _ticket: self.ticket.take(),
            }
            .start();
        }
    }
}
