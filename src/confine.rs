//! Where programs that tools are get confined, and the only file with `unsafe`: the standard library cannot say that a
//! function is fit to run between fork and exec, nor whose an open file is that the process was started with.
//!
//! A program is confined in one of two ways. A fork copies the tables of all memory, which takes milliseconds for a
//! large process, and only a fork can run code before the program begins. So a program's `main` may set for the whole
//! process what children inherit ([`confine_process`]); they are then started without a fork, and the two limits that
//! the service itself must not have are set from outside, right behind the start.
//!
//! That leaves a moment in which such a program has the service's limit of open files, since `posix_spawn` sets no
//! limits. It gains little: in that moment it is loaded, and the limit then holds for whatever it opens later. To close the
//! gap would cost more. A limit is the whole process's, so the service cannot lower its own while it starts a program. A
//! shell in between (`sh -c 'ulimit -n 1024; exec "$0" "$@"'`) makes each start 0.5 ms longer on a quiet machine and 2 ms on
//! a busy one, is not in every image, adds variables of its own, and hides why a program cannot be started.
#![expect(unsafe_code, reason = "see the module; the reason stands beside each use")]

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use tokio::process::{Child, Command};

/// Files and sockets that a program may have open, as most systems begin with.
const OPEN_FILES: u64 = 1024;

/// Whether [`confine_process`] has done its work. It says something about the process, like the settings themselves,
/// which are the kernel's.
static IS_PROCESS_CONFINED: AtomicBool = AtomicBool::new(false);

/// For a program's `main`, before any thread and behind [`stand_in`](crate::init::stand_in): sets for the whole process
/// what the programs that tools are inherit. Neither gains privileges by what it executes (`no_new_privs`), files that
/// they make are their user's alone (umask 077, so the ledger's files too), none dumps core, and open files that the
/// process was started with stay with it. Without this call such programs are confined all the same, but each start
/// takes longer the more memory the process has.
pub fn confine_process() {
    IS_PROCESS_CONFINED.store(settings().is_ok(), Ordering::Relaxed);
}

/// Starts a program that is confined, with all that it starts: it gains no privileges by what it executes
/// (`no_new_privs`, so no set-user-ID program works), its files are its user's alone, it dumps no core, it has at most
/// 1,024 files open and inherits none but its standard streams. On Linux its limit of real-time computing, in
/// microseconds, becomes `family`: a number by which it and all that it starts are known, whatever they do to their
/// environment, groups and sessions.
///
/// # Errors
/// As the system says.
pub(crate) fn spawn(command: &mut Command, family: u64) -> io::Result<Child> {
    #[cfg(target_os = "linux")]
    if IS_PROCESS_CONFINED.load(Ordering::Relaxed) {
        let child = command.spawn()?;
        linux::limit(&child, family);
        return Ok(child);
    }
    // SAFETY: the function runs in a copy of a process with several threads, of which one goes on, so it may only do
    // what is safe in a signal handler. It makes system calls, on values of its own; it takes no lock and no memory.
    unsafe {
        command.pre_exec(move || confine_self(family));
    }
    command.spawn()
}

/// What the program does before it becomes itself.
fn confine_self(family: u64) -> io::Result<()> {
    settings()?;
    setrlimit(Resource::Nofile, open_files())?;
    #[cfg(target_os = "linux")]
    linux::set_family(family);
    #[cfg(not(target_os = "linux"))]
    let _ = family;
    Ok(())
}

/// What a process and its children have in common.
fn settings() -> io::Result<()> {
    umask(Mode::RWXG | Mode::RWXO);
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    #[cfg(target_os = "linux")]
    {
        rustix::thread::set_no_new_privs(true)?;
        linux::inherit_nothing();
    }
    Ok(())
}

/// The limit of a program: never above what this process has.
fn open_files() -> Rlimit {
    let own = getrlimit(Resource::Nofile);
    let at_most = |limit: Option<u64>| Some(limit.map_or(OPEN_FILES, |limit| limit.min(OPEN_FILES)));
    Rlimit { current: at_most(own.current), maximum: at_most(own.maximum) }
}

/// Takes over an open file that this process was started with, by its number. Only for a file that nothing else in the
/// process knows; `None` when the number is one of the standard streams.
pub(crate) fn take_inherited(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: the caller has found it in this process's list of open files, under a name that this crate alone gives,
    // and before anything that opens or closes files was started. So it is open, and nobody else closes it.
    (number > 2).then(|| unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::{c_long, c_uint};
    use std::mem::MaybeUninit;
    use std::os::fd::BorrowedFd;

    use rustix::fs::{Mode, OFlags, RawDir, open};
    use rustix::io::{FdFlags, fcntl_setfd};
    use rustix::process::{Pid, Resource, Rlimit, prlimit, setrlimit};
    use tokio::process::Child;

    use super::open_files;

    /// The standard streams come before.
    const FIRST: c_uint = 3;

    /// Fails where the limit is lower already; then there is the environment to know a program by.
    pub(super) fn set_family(family: u64) {
        let _ = setrlimit(Resource::Rttime, Rlimit { current: Some(family), maximum: Some(family) });
    }

    /// Limits a program that has just begun. One that has ended meanwhile needs no limits.
    pub(super) fn limit(child: &Child, family: u64) {
        let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if id.is_some() {
            let _ = prlimit(id, Resource::Nofile, open_files());
            let _ = prlimit(id, Resource::Rttime, Rlimit { current: Some(family), maximum: Some(family) });
        }
    }

    /// Has the kernel close everything but the standard streams when the program begins. Not at once: the standard
    /// library tells over a pipe of its own whether the program could be started.
    pub(super) fn inherit_nothing() {
        // SAFETY: a system call with numbers alone (close_range(2)); it changes flags, nothing is closed.
        let done: c_long =
            unsafe { libc::syscall(libc::SYS_close_range, FIRST, c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        if done != 0 {
            one_by_one();
        }
    }

    /// For kernels before 5.11, or under a filter that does not know the call. What this crate opens needs neither.
    fn one_by_one() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(folder) = open(c"/proc/self/fd", flags, Mode::empty()) else { return };
        let mut buffer = [MaybeUninit::uninit(); 2048];
        let mut entries = RawDir::new(folder, &mut buffer);
        while let Some(Ok(entry)) = entries.next() {
            if let Some(number) = number(entry.file_name().to_bytes()) {
                // SAFETY: the kernel has just listed it as open, and this process has one thread.
                let file = unsafe { BorrowedFd::borrow_raw(number) };
                let _ = fcntl_setfd(file, FdFlags::CLOEXEC);
            }
        }
    }

    /// The number of a file that is no standard stream.
    fn number(name: &[u8]) -> Option<i32> {
        let number = name.iter().try_fold(0_i32, |number, digit| {
            let digit = char::from(*digit).to_digit(10)?;
            number.checked_mul(10)?.checked_add(digit.cast_signed())
        })?;
        (number >= FIRST.cast_signed()).then_some(number)
    }

    #[cfg(test)]
    mod tests {
        use std::fs::File;
        use std::os::fd::AsRawFd as _;

        use rustix::io::{fcntl_getfd, fcntl_setfd};

        use super::*;

        #[test]
        fn files_are_marked_one_by_one() {
            let file = File::open("/dev/null").unwrap();
            fcntl_setfd(&file, FdFlags::empty()).unwrap();
            one_by_one();
            assert_eq!(fcntl_getfd(&file).unwrap(), FdFlags::CLOEXEC);
            assert_eq!(number(file.as_raw_fd().to_string().as_bytes()), Some(file.as_raw_fd()));
            for name in ["2", ".", "..", "", "99999999999"] {
                assert_eq!(number(name.as_bytes()), None, "{name}");
            }
        }
    }
}
