//! Rulesets of Landlock (`landlock(7)`).

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, NetPort,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, Scope, path_beneath_rules,
};

use super::carve::Carved;
use super::rules::Network;

/// What a ruleset restricts. Everything else is free.
#[derive(Default)]
pub(super) struct Restrictions<'a> {
    /// Files: only these grants.
    pub(super) files: Option<FileRules<'a>>,
    pub(super) network: Option<Network>,
    /// Signals to other processes.
    pub(super) signals: bool,
    /// Abstract Unix sockets of other processes.
    pub(super) abstract_sockets: bool,
}

/// The files of a ruleset.
#[derive(Clone, Copy)]
pub(super) struct FileRules<'a> {
    pub(super) carved: &'a Carved,
    /// Files that may be read and written, such as `/dev/null`.
    pub(super) devices: &'a [&'a str],
    /// A temporary folder.
    pub(super) temporary: Option<&'a Path>,
}

/// The versions that differ for us: files, renaming between folders, TCP ports, scopes.
const VERSIONS: [(ABI, i32); 5] = [
    (ABI::V6, 6),
    (ABI::V4, 4),
    (ABI::V3, 3),
    (ABI::V2, 2),
    (ABI::V1, 1),
];
/// From this version on, files can be moved between folders. Without that, usual programs fail.
pub(super) const MOVES_FILES: i32 = 2;
/// From this version on, TCP ports can be restricted.
pub(super) const HOLDS_TCP: i32 = 4;
/// From this version on, signals and abstract sockets can be restricted.
pub(super) const HOLDS_SIGNALS: i32 = 6;

/// The newest of [`VERSIONS`] that the kernel has; 0: the kernel has no Landlock.
pub(super) fn version() -> i32 {
    let has = |abi: ABI| -> Result<(), RulesetError> {
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(abi))?;
        if abi >= ABI::V4 {
            ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
        }
        if abi >= ABI::V6 {
            ruleset = ruleset.scope(Scope::from_all(abi))?;
        }
        ruleset.create().map(drop)
    };
    VERSIONS
        .iter()
        .find(|(abi, _)| has(*abi).is_ok())
        .map_or(0, |(_, version)| *version)
}

/// A ruleset with these restrictions; `None`: nothing is restricted, or the kernel has no Landlock.
pub(super) fn ruleset(restrictions: &Restrictions<'_>) -> Result<Option<OwnedFd>, RulesetError> {
    let (mut ruleset, mut restricts) = (Ruleset::default(), false);
    let all = AccessFs::from_all(ABI::V6);
    if restrictions.files.is_some() {
        ruleset = ruleset.handle_access(all)?;
        restricts = true;
    }
    if matches!(
        restrictions.network,
        Some(Network::None | Network::Proxy(_))
    ) {
        ruleset = ruleset.handle_access(AccessNet::from_all(ABI::V6))?;
        restricts = true;
    }
    let scopes = [
        (restrictions.signals, Scope::Signal),
        (restrictions.abstract_sockets, Scope::AbstractUnixSocket),
    ];
    for (_, scope) in scopes.into_iter().filter(|(is_wanted, _)| *is_wanted) {
        ruleset = ruleset.scope(scope)?;
        restricts = true;
    }
    if !restricts {
        return Ok(None);
    }
    let mut ruleset = ruleset.create()?;
    if let Some(FileRules {
        carved,
        devices,
        temporary,
    }) = restrictions.files
    {
        let read = AccessFs::from_read(ABI::V6);
        let grants = |is_writable: bool| -> Vec<&PathBuf> {
            let grants = carved.grants.iter();
            grants
                .filter(|grant| grant.is_writable == is_writable)
                .map(|grant| &grant.path)
                .collect()
        };
        ruleset = ruleset
            .add_rules(path_beneath_rules(grants(false), read))?
            .add_rules(path_beneath_rules(grants(true), all))?
            .add_rules(path_beneath_rules(temporary, all))?
            .add_rules(path_beneath_rules(devices, all))?
            .add_rules(path_beneath_rules(
                &carved.listed,
                BitFlags::from(AccessFs::ReadDir),
            ))?;
    }
    if let Some(Network::Proxy(port)) = restrictions.network {
        ruleset = ruleset.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
    }
    Ok(ruleset.into())
}
