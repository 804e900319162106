//! What the first process of a container owes to the others.
//!
//! A process whose parent ends becomes a child of process 1 and stays a zombie until process 1 collects it; programs
//! that tools leave behind do so all the time. A service cannot collect them beside children of its own: who takes any
//! dead child there is takes exit statuses that others wait for, and to tell the two apart it would have to know every
//! child of every library. So process 1 stays this small: it starts the same program again as its only child, hands
//! signals on, collects everybody, and ends as that child has ended. Also, nothing ignores a signal for want of a
//! handler any more, as the kernel has it for process 1.
//!
//! An embedding program's `main` may begin with [`stand_in`], too, behind [`conceal`](crate::environment::conceal).

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{self, Command, ExitCode};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use rustix::termios::tcsetpgrp;
use tokio::signal::unix::{SignalKind, signal};

use crate::environment::{Environment, pass_to_child};

/// What a runtime or a person sends to a container.
const HANDED_ON: [Signal; 6] = [Signal::TERM, Signal::INT, Signal::QUIT, Signal::HUP, Signal::USR1, Signal::USR2];

/// As process 1: runs this program again, with the same arguments, as a child, and returns its exit code (128 and the
/// signal's number when one killed it) once it has ended. `None` for every other process, and when the child cannot be
/// started: then `main` goes on by itself. The child has these variables: in its environment, or, when they were
/// concealed, for its own [`conceal`](crate::environment::conceal) to find.
pub fn stand_in(environment: &Environment) -> Option<ExitCode> {
    if process::id() != 1 {
        return None;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    match runtime.and_then(|runtime| runtime.block_on(run(environment))) {
        Ok(code) => Some(ExitCode::from(code)),
        Err(error) => {
            say(&format!("process 1 cannot start the program as its child, so zombies will stay: {error}"));
            None
        }
    }
}

async fn run(environment: &Environment) -> io::Result<u8> {
    // Before the child is there: a signal that comes early must not be lost, nor must a death.
    let mut deaths = signal(SignalKind::child())?;
    let mut signals = Vec::new();
    for handed_on in HANDED_ON {
        signals.push((handed_on, signal(SignalKind::from_raw(handed_on.as_raw()))?));
    }
    let program = start(environment)?;
    for (handed_on, mut received) in signals {
        tokio::spawn(async move {
            while received.recv().await.is_some() {
                let _ = kill_process(program, handed_on);
            }
        });
    }
    loop {
        if let Some(code) = collect(program) {
            return Ok(code);
        }
        deaths.recv().await;
    }
}

/// Starts this program again.
fn start(environment: &Environment) -> io::Result<Pid> {
    let mut arguments = std::env::args_os();
    let mut command = Command::new(std::env::current_exe()?);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    // Open until the child has inherited it.
    let _passed = pass_to_child(environment)?;
    // A group of its own: Ctrl-C in a terminal goes to a whole group, and with ours it would arrive twice.
    let child = command.args(arguments).process_group(0).spawn()?;
    let program = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let program = program.ok_or_else(|| io::Error::other("it has no process id"))?;
    // Fails where there is no terminal, and nothing is to be done then.
    let _ = tcsetpgrp(io::stdin(), program);
    Ok(program)
}

/// Collects all the dead; the exit code, if the program is one of them.
fn collect(program: Pid) -> Option<u8> {
    while let Ok(Some((dead, status))) = wait(WaitOptions::NOHANG) {
        if dead == program {
            return Some(exit_code(status));
        }
    }
    None
}

/// The code that shells show for an end like this.
fn exit_code(status: WaitStatus) -> u8 {
    if let Some(signal) = status.terminating_signal() {
        say(&format!("the program was killed by signal {signal}"));
        return u8::try_from(128 + signal).unwrap_or(u8::MAX);
    }
    status.exit_status().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

fn say(message: &str) {
    let _ = writeln!(io::stderr(), "toolcrib: {message}");
}
