//! The duties of the first process of a container.
//!
//! A process whose parent ends becomes a child of process 1. After its end it stays a zombie until
//! process 1 reaps it. Programs that tools leave behind do this all the time.
//!
//! A service with children of its own cannot reap them. Reaping any dead child would take exit
//! statuses that other code waits for. To avoid that, the service would have to know every child of
//! every library. So process 1 stays small. It starts the same program again as its only child,
//! forwards signals, reaps all orphans, and ends as that child ends.
//!
//! Also, the kernel ignores signals without a handler for process 1. The child is an ordinary
//! process, so signals work there.
//!
//! The `main` of an embedding program may call [`run_as_init`], too, after
//! [`conceal`](crate::environment::conceal).

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{self, Command, ExitCode};

use futures_util::FutureExt;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use rustix::termios::tcsetpgrp;
use tokio::signal::unix::{SignalKind, signal};

use crate::environment::{Environment, pass_to_child};

/// Signals that a runtime or a person sends to a container.
const FORWARDED_SIGNALS: [Signal; 6] = [
    Signal::TERM,
    Signal::INT,
    Signal::QUIT,
    Signal::HUP,
    Signal::USR1,
    Signal::USR2,
];

/// In process 1: runs this program again with the same arguments as a child. When the child ends,
/// returns its exit code, or 128 plus the signal's number if a signal killed it. The child gets
/// these variables in its environment. If they were concealed, its own
/// [`conceal`](crate::environment::conceal) finds them.
///
/// Returns `None` in every other process, and if the child cannot be started. Then `main` continues
/// normally.
pub fn run_as_init(environment: &Environment) -> Option<ExitCode> {
    if process::id() != 1 {
        return None;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build();
    match runtime.and_then(|runtime| runtime.block_on(run_child(environment))) {
        Ok(code) => Some(ExitCode::from(code)),
        Err(error) => {
            print_message(&format!(
                "process 1 cannot start the program as its child, so zombies will stay: {error}"
            ));
            None
        }
    }
}

async fn run_child(environment: &Environment) -> io::Result<u8> {
    // Handlers are installed before the child starts. Otherwise an early signal, or an early end of
    // the child, would be lost.
    let mut deaths = signal(SignalKind::child())?;
    let mut signals = Vec::new();
    for handed_on in FORWARDED_SIGNALS {
        signals.push((handed_on, signal(SignalKind::from_raw(handed_on.as_raw()))?));
    }
    let program = start_child(environment)?;
    for (handed_on, mut received) in signals {
        let task = async move {
            while received.recv().await.is_some() {
                let _ = kill_process(program, handed_on);
            }
        };
        tokio::spawn(task.boxed());
    }
    loop {
        if let Some(code) = reap_children(program) {
            return Ok(code);
        }
        deaths.recv().await;
    }
}

/// Starts this program again.
fn start_child(environment: &Environment) -> io::Result<Pid> {
    let mut arguments = std::env::args_os();
    let mut command = Command::new(std::env::current_exe()?);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    // It must stay open until the child has inherited it.
    let _passed = pass_to_child(environment)?;
    // A separate process group: a terminal sends Ctrl-C to a whole group. In our group the child
    // would get it twice.
    let child = command.args(arguments).process_group(0).spawn()?;
    let program = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let program = program.ok_or_else(|| io::Error::other("it has no process id"))?;
    // This fails without a terminal, and then nothing needs to be done.
    let _ = tcsetpgrp(io::stdin(), program);
    Ok(program)
}

/// Reaps all dead children. Returns the exit code if the program is one of them.
fn reap_children(program: Pid) -> Option<u8> {
    while let Ok(Some((dead, status))) = wait(WaitOptions::NOHANG) {
        if dead == program {
            return Some(exit_code(status));
        }
    }
    None
}

/// The exit code that shells show for this status.
fn exit_code(status: WaitStatus) -> u8 {
    if let Some(signal) = status.terminating_signal() {
        print_message(&format!("the program was killed by signal {signal}"));
        return u8::try_from(128 + signal).unwrap_or(u8::MAX);
    }
    status
        .exit_status()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1)
}

fn print_message(message: &str) {
    let _ = writeln!(io::stderr(), "toolcrib: {message}");
}
