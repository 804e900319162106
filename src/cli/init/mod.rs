//! `toolcrib init`: a first manifest, with what belongs beside it. No file is ever overwritten.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use clap::Args;

use super::Failure;
use super::failure::describe_io_error;
use super::manifest_file::{DEFAULT_MANIFEST, DEFAULT_MANIFESTS};
use super::output::print_line;
use crate::manifest;

/// The new manifest. Its lines that begin with `#` and no sentence are examples to be used.
const NEW_MANIFEST: &str = include_str!("manifest.yaml");
/// Functions of a TypeScript file as tools: a file, and the section for it.
const TYPESCRIPT: [(&str, &str); 2] = [
    ("shop.ts", include_str!("shop.ts")),
    (DEFAULT_MANIFEST, include_str!("typescript.yaml")),
];
/// The file that the first line of the manifest names, for editors.
const SCHEMA_FILE: &str = "toolcrib.schema.json";
/// Keeps what the service writes out of a repository: the ledger is one database in several files.
const GITIGNORE: &str = "# The ledger of Toolcrib. Its files belong together.\ntoolcrib.db*\n# Packages of Python and TypeScript modules.\ntoolcrib-venvs/\n";
/// The line of `.gitignore` that matters most.
const LEDGER_PATTERN: &str = "toolcrib.db*";

/// What is written.
#[derive(Args)]
pub(super) struct InitArgs {
    /// Also write shop.ts: TypeScript functions that are tools.
    #[arg(long)]
    typescript: bool,
}

/// Writes the files into the working folder.
pub(super) fn run(args: &InitArgs) -> Result<(), Failure> {
    print_line(&write_files(Path::new(""), args.typescript)?.join("\n"));
    Ok(())
}

/// Writes the files into `folder`. Returns one line for each file, and the next steps.
fn write_files(folder: &Path, typescript: bool) -> Result<Vec<String>, Failure> {
    let exists = |name: &str| {
        Failure::Failed(format!(
            "toolcrib: {name} exists already; nothing was written"
        ))
    };
    if let Some(name) = DEFAULT_MANIFESTS
        .into_iter()
        .find(|name| folder.join(name).symlink_metadata().is_ok())
    {
        return Err(exists(name));
    }
    let [(file, source), (_, section)] = TYPESCRIPT;
    let manifest = match typescript {
        true if !write_new(folder, file, source)? => return Err(exists(file)),
        true => [NEW_MANIFEST, section].concat(),
        false => NEW_MANIFEST.to_owned(),
    };
    if !write_new(folder, DEFAULT_MANIFEST, &manifest)? {
        return Err(exists(DEFAULT_MANIFEST));
    }
    let mut lines = vec![format!(
        "{DEFAULT_MANIFEST}: written, with two tools and examples of others"
    )];
    if typescript {
        lines.push(format!(
            "{file}: written, with two functions that are tools"
        ));
    }
    let schema = serde_json::to_string_pretty(&manifest::json_schema()).unwrap_or_default() + "\n";
    lines.push(match write_new(folder, SCHEMA_FILE, &schema)? {
        true => format!("{SCHEMA_FILE}: written; editors complete and check the manifest with it"),
        false => format!("{SCHEMA_FILE}: kept; toolcrib schema > {SCHEMA_FILE} makes it anew"),
    });
    if write_new(folder, ".gitignore", GITIGNORE)? {
        lines.push(format!(
            ".gitignore: written, with the ledger's files ({LEDGER_PATTERN})"
        ));
    } else if !is_ignored(&folder.join(".gitignore")) {
        lines.push(format!(
            ".gitignore: kept; add {LEDGER_PATTERN} to it, the ledger's files"
        ));
    }
    let next = [
        "toolcrib check",
        match typescript {
            true => "toolcrib call findProducts word=kettle",
            false => "toolcrib call word_count text=\"to be or not to be\"",
        },
        "toolcrib serve          # then open the console: http://127.0.0.1:7411/",
    ];
    lines.push(format!("\nNext:\n  {}", next.join("\n  ")));
    Ok(lines)
}

/// Writes a file that does not exist yet. Returns whether it did not exist.
fn write_new(folder: &Path, name: &str, text: &str) -> Result<bool, Failure> {
    let path = folder.join(name);
    let written = File::create_new(&path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(Failure::Failed(format!(
            "toolcrib: {}: {}",
            path.display(),
            describe_io_error(&error)
        ))),
    }
}

fn is_ignored(gitignore: &Path) -> bool {
    let text = std::fs::read_to_string(gitignore).unwrap_or_default();
    text.lines().any(|line| {
        [LEDGER_PATTERN, "*.db*", "toolcrib.*"].contains(&line.trim().trim_start_matches('/'))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::environment::Environment;
    use crate::manifest::{ProcessInput, check};

    fn findings(text: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(DEFAULT_MANIFEST);
        std::fs::write(&path, text).unwrap();
        std::fs::write(folder.path().join("mine.py"), "").unwrap();
        std::fs::write(folder.path().join("shop.ts"), "").unwrap();
        let environment =
            Environment::from_iter([("SHOP_KEY", "not-a-real-value"), ("PATH", "/usr/bin:/bin")]);
        let checked = check(&path, &ProcessInput::new(&environment), &HashMap::new());
        checked.findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn new_manifest_has_no_findings() {
        assert_eq!(findings(NEW_MANIFEST), [""; 0]);
    }

    #[test]
    fn commented_examples_have_no_findings() {
        let is_sentence = |line: &str| line.starts_with("# ") && !line.starts_with("#  ");
        let lines = NEW_MANIFEST
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(example) if !is_sentence(line) => example,
                _ => line,
            });
        let used = lines.collect::<Vec<_>>().join("\n");
        assert!(
            used.contains("\nmcp_servers:") && used.contains("\n  get_order:"),
            "{used}"
        );
        // A server is pinned after it was listed for the first time.
        let found: Vec<String> = findings(&used)
            .into_iter()
            .filter(|line| !line.contains("[unpinned-server]"))
            .collect();
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn typescript_is_added() {
        let manifest = [NEW_MANIFEST, TYPESCRIPT[1].1].concat();
        assert_eq!(findings(&manifest), [""; 0]);
        let folder = tempfile::tempdir().unwrap();
        assert!(write_files(folder.path(), true).is_ok());
        let written = std::fs::read_to_string(folder.path().join(DEFAULT_MANIFEST)).unwrap();
        assert_eq!(written, manifest);
        assert!(folder.path().join("shop.ts").is_file());
        std::fs::remove_file(folder.path().join(DEFAULT_MANIFEST)).unwrap();
        assert!(write_files(folder.path(), true).is_err(), "shop.ts stays");
    }

    #[test]
    fn existing_files_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(".gitignore"), "target\n").unwrap();
        let Ok(lines) = write_files(folder.path(), false) else {
            panic!("written")
        };
        assert!(
            lines
                .iter()
                .any(|line| line == ".gitignore: kept; add toolcrib.db* to it, the ledger's files"),
            "{lines:?}"
        );
        assert_eq!(
            std::fs::read_to_string(folder.path().join(".gitignore")).unwrap(),
            "target\n"
        );
        assert!(write_files(folder.path(), false).is_err());
        std::fs::rename(
            folder.path().join("toolcrib.yaml"),
            folder.path().join("toolcrib.yml"),
        )
        .unwrap();
        assert!(write_files(folder.path(), false).is_err());
        assert!(!folder.path().join("toolcrib.yaml").exists());
    }
}
