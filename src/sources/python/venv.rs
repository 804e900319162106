//! Builds virtual environments from requirements files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::interpreter::Python;
use crate::kinds::process::is_executable_file;
use crate::sources::workers::{PackageFolder, Setup};

/// Most requirements files that are read: the given one, and those that it includes.
const MAX_FILES: usize = 64;

/// The interpreter of the virtual environment with the packages of this requirements file. Builds
/// the environment first, if necessary.
pub(super) async fn build_venv(
    python: &Python,
    file: &Path,
    setup: &Setup<'_>,
) -> Result<PathBuf, String> {
    let requirements = read_requirements(file)?;
    let parts = [
        python.version.as_bytes(),
        python.program.as_os_str().as_encoded_bytes(),
        &requirements,
    ];
    let venv = PackageFolder::new(setup, file, "virtual environment", parts);
    let interpreter = venv.path.join("bin").join("python");
    let build = async {
        let mut make = setup.command(&python.program);
        make.args(["-m", "venv"]).arg(&venv.path);
        venv.run_step(make, "python -m venv").await?;
        let mut install = setup.command(&interpreter);
        install
            .args([
                "-m",
                "pip",
                "install",
                "--disable-pip-version-check",
                "--no-input",
                "--progress-bar",
                "off",
                "-r",
            ])
            .arg(file)
            // Relative paths in the file start at its own folder, as they do when a person installs
            // it there.
            .current_dir(file.parent().unwrap_or(Path::new("/")))
            .env("PYTHONUNBUFFERED", "1");
        venv.run_step(install, "pip install").await
    };
    venv.ensure_built(|| is_executable_file(&interpreter), build)
        .await?;
    Ok(interpreter)
}

/// The contents of the file and of the files that it includes, in their order.
fn read_requirements(file: &Path) -> Result<Vec<u8>, String> {
    let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
    let mut pending = vec![file.to_owned()];
    while let Some(next) = pending.pop() {
        if !seen.insert(next.clone()) {
            continue;
        }
        if seen.len() > MAX_FILES {
            return Err(format!(
                "{} names more than {MAX_FILES} files",
                file.display()
            ));
        }
        let text =
            fs::read(&next).map_err(|error| format!("cannot read {}: {error}", next.display()))?;
        let folder = next.parent().unwrap_or(Path::new("/"));
        let lines = String::from_utf8_lossy(&text);
        pending.extend(
            lines
                .lines()
                .filter_map(included_file)
                .map(|name| folder.join(name)),
        );
        all.extend_from_slice(&text);
        all.push(b'\n');
    }
    Ok(all)
}

/// The file that a line of a requirements file includes. URLs, and names that pip itself expands,
/// are left to pip.
fn included_file(line: &str) -> Option<&str> {
    let line = line.split(" #").next()?.trim();
    let rest = ["-r", "-c", "--requirement", "--constraint"]
        .iter()
        .find_map(|option| {
            let rest = line.strip_prefix(option)?;
            let is_short = option.len() == 2;
            (is_short || rest.starts_with([' ', '\t', '='])).then_some(rest)
        })?;
    let name = rest.trim_start_matches('=').trim();
    (!name.is_empty() && !name.contains("://") && !name.contains("${")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn included_files_are_part_of_the_requirements() {
        for (line, expected) in [
            ("-r other.txt", Some("other.txt")),
            ("-cconstraints.txt # pinned", Some("constraints.txt")),
            ("--requirement=more/x.txt", Some("more/x.txt")),
            ("--constraint  x.txt", Some("x.txt")),
            ("requests>=2", None),
            ("--requirements-like", None),
            ("-r https://example.com/x.txt", None),
        ] {
            assert_eq!(included_file(line), expected, "{line}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        file("a.txt", "-r b.txt\none");
        file("b.txt", "-c a.txt\ntwo");
        let all = read_requirements(&folder.path().join("a.txt")).unwrap();
        assert_eq!(
            String::from_utf8(all).unwrap(),
            "-r b.txt\none\n-c a.txt\ntwo\n"
        );
        file("b.txt", "-r c.txt");
        let fault = read_requirements(&folder.path().join("a.txt")).unwrap_err();
        assert!(
            fault.starts_with("cannot read ") && fault.contains("c.txt: No such file"),
            "{fault}"
        );
    }
}
