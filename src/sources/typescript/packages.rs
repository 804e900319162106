//! Installs the packages of a `package.json` into a folder of their own.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::runtime::{Flavor, Runtime};
use crate::call::JsonObject;
use crate::sources::workers::{PackageFolder, Setup};

/// The name of the requirements file for the package manager.
const MANIFEST: &str = "package.json";
/// Settings of npm, beside the requirements file.
const NPM_SETTINGS: &str = ".npmrc";
/// Lock files, in the order in which they are searched.
const NPM_LOCKS: &[&str] = &["npm-shrinkwrap.json", "package-lock.json"];
const BUN_LOCKS: &[&str] = &["bun.lock", "bun.lockb"];
/// The objects of a `package.json` that name packages.
const DEPENDENCIES: [&str; 4] = [
    "dependencies",
    "devDependencies",
    "optionalDependencies",
    "peerDependencies",
];
/// Versions that are folders beside the file.
const LOCAL_VERSIONS: [&str; 5] = ["file:", "link:", "workspace:", "portal:", "."];

/// Installs the packages of this file, if they are not there. Returns the folder that has
/// `node_modules`.
pub(super) async fn install_packages(
    runtime: &Runtime,
    file: &Path,
    setup: &Setup<'_>,
) -> Result<PathBuf, String> {
    let manifest = read(file)?;
    check_manifest(file, &manifest)?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    let locks = match runtime.flavor {
        Flavor::Bun => BUN_LOCKS,
        Flavor::Node | Flavor::Deno => NPM_LOCKS,
    };
    let lock = locks.iter().find(|name| folder.join(name).is_file());
    let mut files = vec![(MANIFEST, manifest)];
    for &name in lock.into_iter().chain(&[NPM_SETTINGS]) {
        let path = folder.join(name);
        if path.is_file() {
            files.push((name, read(&path)?));
        }
    }
    let mut parts = vec![
        runtime.version.as_bytes(),
        runtime.program.as_os_str().as_encoded_bytes(),
    ];
    parts.extend(
        files
            .iter()
            .flat_map(|(name, text)| [name.as_bytes(), text.as_slice()]),
    );
    let packages = PackageFolder::new(setup, file, "package folder", parts);
    let build = async {
        let target = &packages.path;
        let fault = |error| format!("cannot write {}: {error}", target.display());
        fs::create_dir_all(target).map_err(fault)?;
        for (name, text) in &files {
            fs::write(target.join(name), text).map_err(fault)?;
        }
        let runs_scripts = files
            .iter()
            .any(|(name, text)| *name == NPM_SETTINGS && permits_scripts(text));
        let (mut install, step) = install_command(runtime, lock.is_some(), runs_scripts, setup)?;
        install.current_dir(target);
        packages.run_step(install, step).await
    };
    let marker = packages.path.join(MANIFEST);
    packages.ensure_built(|| marker.is_file(), build).await?;
    Ok(packages.path)
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

/// Refuses what can be no manifest, and packages that stand beside it: they are not there where the
/// packages are installed.
fn check_manifest(file: &Path, text: &[u8]) -> Result<(), String> {
    let shown = file.display();
    let manifest: JsonObject = serde_json::from_slice(text)
        .map_err(|error| format!("{shown} is not a package.json: {error}"))?;
    let packages = DEPENDENCIES
        .iter()
        .filter_map(|key| manifest.get(*key)?.as_object())
        .flatten();
    for (name, version) in packages {
        let version = version.as_str().unwrap_or_default();
        if LOCAL_VERSIONS
            .iter()
            .any(|local| version.starts_with(local))
        {
            return Err(format!(
                "the package {name} in {shown} is a folder beside it ({version}), and `requirements` installs elsewhere: run \
                 npm install in that folder, and leave `requirements` out"
            ));
        }
    }
    Ok(())
}

/// Whether these settings of npm say that packages may run programs when they are installed.
fn permits_scripts(settings: &[u8]) -> bool {
    let settings = String::from_utf8_lossy(settings);
    let mut words = settings.lines().filter_map(|line| line.split_once('='));
    words.any(|(key, value)| key.trim() == "ignore-scripts" && value.trim() == "false")
}

/// The command that installs, and its name in messages.
fn install_command(
    runtime: &Runtime,
    is_locked: bool,
    runs_scripts: bool,
    setup: &Setup<'_>,
) -> Result<(Command, &'static str), String> {
    let (mut command, step) = match (runtime.flavor, is_locked) {
        (Flavor::Bun, true) => {
            let mut command = setup.command(&runtime.program);
            command.args(["install", "--frozen-lockfile"]);
            (command, "bun install")
        }
        (Flavor::Bun, false) => {
            let mut command = setup.command(&runtime.program);
            command.arg("install");
            (command, "bun install")
        }
        (Flavor::Node | Flavor::Deno, _) => {
            let (word, step) = match is_locked {
                true => ("ci", "npm ci"),
                false => ("install", "npm install"),
            };
            let mut command = npm_command(runtime, setup)?;
            command.args([word, "--no-audit", "--no-fund", "--no-progress"]);
            (command, step)
        }
    };
    if !runs_scripts {
        command.arg("--ignore-scripts");
    }
    Ok((command, step))
}

/// The npm that belongs to the runtime, else the one in `PATH`.
fn npm_command(runtime: &Runtime, setup: &Setup<'_>) -> Result<Command, String> {
    let folder = runtime.program.parent().unwrap_or(Path::new("/"));
    let own = folder.join("npm");
    if runtime.flavor != Flavor::Node || !own.is_file() {
        let npm = setup.locate_program(Path::new("npm"), "package manager")?;
        return Ok(setup.command(&npm));
    }
    // npm is a script, which searches its runtime in `PATH`.
    let variables = &setup.process_env.variables;
    let mut path: OsString = folder.into();
    if let Some(old) = variables.get(std::ffi::OsStr::new("PATH")) {
        path.push(":");
        path.push(old);
    }
    let mut command = setup.command(&own);
    command.env("PATH", path);
    Ok(command)
}
