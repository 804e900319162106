//! Filters for system calls.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Is,
    SeccompCondition as Condition, SeccompFilter, SeccompRule as Rule, TargetArch, sock_filter,
};

use super::rules::Network;

/// What the filters depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needs {
    /// The program sees only what is named.
    pub(super) is_only_named: bool,
    pub(super) network: Network,
    /// Bubblewrap gives the program namespaces of its own.
    pub(super) has_namespaces: bool,
    /// Landlock or a namespace keeps the program away from processes of others.
    pub(super) has_process_bounds: bool,
}

/// Conditions on the arguments of a call. All of them must hold.
type Conditions = Vec<Condition>;

/// Kernel surface that tools never need: keys, BPF, modules, tracing, the clock, and ways around the checks
/// of paths and system calls.
const NEVER: &[i64] = &[
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_open_by_handle_at,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_syslog,
    libc::SYS_vhangup,
];

/// What reaches into another process.
const INTO_PROCESSES: &[i64] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
];

/// What changes namespaces and mounts. A user namespace would make much of the kernel reachable.
const NAMESPACES: &[i64] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_mount_setattr,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

/// The flags that make a namespace without the mounts of this one: the call, the number of the argument, and the
/// flag. A mount hides a file only from processes in namespaces that have the mount.
const WITHOUT_MOUNTS: [(i64, u8, u64); 4] = [
    (libc::SYS_move_mount, 4, 0x200),  // MOVE_MOUNT_BENEATH
    (libc::SYS_open_tree, 2, 0x2),     // OPEN_TREE_NAMESPACE
    (libc::SYS_fsmount, 1, 0x2),       // FSMOUNT_NAMESPACE
    (libc::SYS_unshare, 0, 0x10_0000), // UNSHARE_EMPTY_MNTNS
];

/// Requests of ioctl that write into the input of a terminal (`tty_ioctl(4)`).
const TERMINAL_INPUT: [u64; 2] = [0x5412, 0x541C];

/// The kinds of pairs that stay connected: `SOCK_STREAM` and `SOCK_SEQPACKET`.
const PAIRS: [u64; 2] = [1, 5];

/// The filters for these needs. The first one comes first.
///
/// # Errors
/// Those of seccompiler. None is expected: the filters differ only by [`Needs`].
pub(super) fn filters(needs: Needs) -> Result<Vec<BpfProgram>, Error> {
    let mut unknown: BTreeMap<i64, Vec<Rule>> = NEVER.iter().map(|call| (*call, vec![])).collect();
    let mut refused: BTreeMap<i64, Vec<Rule>> = BTreeMap::new();
    if needs.is_only_named || !needs.has_process_bounds {
        refused.extend(INTO_PROCESSES.iter().map(|call| (*call, vec![])));
    }
    let input = TERMINAL_INPUT.map(|request| Condition::new(1, Len::Dword, Is::Eq, request));
    let input: Result<Vec<Rule>, Error> = input
        .into_iter()
        .map(|condition| Ok(Rule::new(vec![condition?])?))
        .collect();
    refused.insert(libc::SYS_ioctl, input?);
    if !needs.has_namespaces {
        // The limits of another process: a limit of processor time would end the service.
        let other = Condition::new(0, Len::Dword, Is::Ne, 0)?;
        refused.insert(libc::SYS_prlimit64, vec![Rule::new(vec![other])?]);
    }
    if let Network::Proxy(_) = needs.network {
        // It connects without the call that Landlock holds.
        let fast_open = libc::MSG_FASTOPEN.cast_unsigned().into();
        for (call, flags) in [
            (libc::SYS_sendto, 3),
            (libc::SYS_sendmsg, 2),
            (libc::SYS_sendmmsg, 3),
        ] {
            let has_flag = Condition::new(flags, Len::Dword, Is::MaskedEq(fast_open), fast_open)?;
            refused.insert(call, vec![Rule::new(vec![has_flag])?]);
        }
    }
    // Its flags are in memory, where a filter cannot see them. Without it, the C library uses clone.
    unknown.insert(libc::SYS_clone3, vec![]);
    if needs.is_only_named {
        refused.extend(NAMESPACES.iter().map(|call| (*call, vec![])));
        let new_user = libc::CLONE_NEWUSER.cast_unsigned().into();
        for call in [libc::SYS_clone, libc::SYS_unshare] {
            let has_flag = Condition::new(0, Len::Dword, Is::MaskedEq(new_user), new_user)?;
            refused.insert(call, vec![Rule::new(vec![has_flag])?]);
        }
        // Only the value that asks for the present one, and the usual one.
        let changes = [0xffff_ffff, 0]
            .map(|usual| Condition::new(0, Len::Dword, Is::Ne, usual))
            .into_iter()
            .collect::<Result<Conditions, _>>()?;
        refused.insert(libc::SYS_personality, vec![Rule::new(changes)?]);
    } else {
        refused.insert(libc::SYS_pivot_root, vec![]);
        for (call, argument, flag) in WITHOUT_MOUNTS {
            let has_flag = Condition::new(argument, Len::Dword, Is::MaskedEq(flag), flag)?;
            refused.insert(call, vec![Rule::new(vec![has_flag])?]);
        }
    }
    let mut filters = vec![
        without_x32(compile(unknown, libc::ENOSYS)?),
        compile(refused, libc::EPERM)?,
    ];
    let sockets = refused_sockets(needs)?;
    if let Some(rules) = sockets {
        let mut calls = BTreeMap::from([(libc::SYS_socket, rules)]);
        if needs.is_only_named && !needs.has_namespaces {
            // A pair of datagrams can send to any Unix socket.
            let mut pairs = vec![none_of(0, &[libc::AF_UNIX])?];
            for kind in (0..16).filter(|kind| !PAIRS.contains(kind)) {
                let is_kind = Condition::new(1, Len::Dword, Is::MaskedEq(0xf), kind)?;
                pairs.push(Rule::new(vec![is_kind])?);
            }
            calls.insert(libc::SYS_socketpair, pairs);
        }
        filters.push(compile(calls, libc::ENETUNREACH)?);
    }
    Ok(filters)
}

/// The argument of a call has none of these values.
fn none_of(argument: u8, allowed: &[i32]) -> Result<Rule, Error> {
    let conditions = allowed
        .iter()
        .map(|value| Condition::new(argument, Len::Dword, Is::Ne, value.cast_unsigned().into()));
    Ok(Rule::new(conditions.collect::<Result<Conditions, _>>()?)?)
}

/// The sockets that the network rules refuse. No rules in the list: every socket.
fn refused_sockets(needs: Needs) -> Result<Option<Vec<Rule>>, Error> {
    let (is_open, has_namespaces) = (!needs.is_only_named, needs.has_namespaces);
    Ok(match needs.network {
        Network::All if is_open => None,
        // A namespace holds no other families, such as the sockets to a hypervisor.
        Network::All | Network::None if has_namespaces => Some(vec![none_of(
            0,
            &[
                libc::AF_UNIX,
                libc::AF_INET,
                libc::AF_INET6,
                libc::AF_NETLINK,
            ],
        )?]),
        // No filter can see the path of a Unix socket, and Landlock does not hold such sockets.
        Network::All => Some(vec![none_of(
            0,
            &[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
        )?]),
        Network::None => Some(vec![]),
        Network::Proxy(_) => {
            let mut families = vec![libc::AF_INET, libc::AF_INET6];
            families.extend(has_namespaces.then_some(libc::AF_UNIX));
            // Landlock holds TCP, but not the protocols that resemble it.
            let mut rules = vec![none_of(0, &families)?, none_of(2, &[0, libc::IPPROTO_TCP])?];
            for family in [libc::AF_INET, libc::AF_INET6] {
                for kind in (0..16).filter(|kind| *kind != 1) {
                    rules.push(Rule::new(vec![
                        Condition::new(0, Len::Dword, Is::Eq, family.cast_unsigned().into())?,
                        Condition::new(1, Len::Dword, Is::MaskedEq(0xf), kind)?,
                    ])?);
                }
            }
            Some(rules)
        }
    })
}

fn compile(calls: BTreeMap<i64, Vec<Rule>>, error: i32) -> Result<BpfProgram, Error> {
    let refuse = SeccompAction::Errno(error.cast_unsigned());
    let arch: TargetArch = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, refuse, arch)?;
    Ok(filter.try_into()?)
}

/// Refuses the system calls of the x32 ABI, whose numbers the filter does not have.
fn without_x32(program: BpfProgram) -> BpfProgram {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const X32_BIT: u32 = 0x4000_0000;
    const ERRNO: u32 = 0x0005_0000;
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let mut all = vec![
        step(LOAD_NUMBER, 0, 0, 0),
        step(JUMP_IF_AT_LEAST, 0, 1, X32_BIT),
        step(RETURN, 0, 0, ERRNO | libc::ENOSYS.cast_unsigned()),
    ];
    all.extend(program);
    all
}

/// A filter in the form of the kernel, as bubblewrap reads it.
pub(super) fn to_bytes(program: &BpfProgram) -> Vec<u8> {
    let steps = program.iter().map(|step| {
        let [a, b] = step.code.to_ne_bytes();
        let [c, d, e, f] = step.k.to_ne_bytes();
        [a, b, step.jt, step.jf, c, d, e, f]
    });
    steps.flatten().collect()
}
