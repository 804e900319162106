//! Which files and folders to grant, so that hidden ones are left out. Landlock can only grant, and a
//! grant holds for all that is below a folder. So a folder with something hidden in it is not granted, but
//! each of its other entries is.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use super::rules::Grant;

/// What is granted.
#[derive(Debug, Default)]
pub(super) struct Carved {
    pub(super) grants: Vec<Grant>,
    /// Folders whose entries may be listed, because something below them is granted.
    pub(super) listed: Vec<PathBuf>,
    /// Hidden paths that are granted nevertheless.
    pub(super) exposed: Vec<PathBuf>,
    /// The folders that were read, each with the time of its last change. If one changes, the grants
    /// are computed again.
    seen: BTreeMap<PathBuf, (i64, i64)>,
}

/// More entries in one folder would make a start slow.
const MAX_ENTRIES: usize = 4096;

impl Carved {
    /// Leaves `hidden` out of `roots`. A folder for which `must_stay_open` is true is granted as a whole,
    /// because its programs make files there.
    pub(super) fn new(
        roots: &[Grant],
        hidden: &[PathBuf],
        kept: &[Grant],
        must_stay_open: &dyn Fn(&Path, &Grant) -> bool,
    ) -> Self {
        let mut carved = Self::default();
        for root in roots {
            let is_held = |path: &&PathBuf| {
                let folders = path.ancestors().skip(1);
                let mut folders = folders.take_while(|folder| folder.starts_with(&root.path));
                !folders.any(|folder| must_stay_open(folder, root))
            };
            // What is below a hidden folder is hidden with it, unless something between them is kept.
            let is_hidden_above = |path: &Path| {
                let mut above = hidden
                    .iter()
                    .filter(|&one| one != path && path.starts_with(one));
                above.any(|above| {
                    let mut kept = kept.iter();
                    !kept.any(|kept| kept.path.starts_with(above) && path.starts_with(&kept.path))
                })
            };
            let below = hidden
                .iter()
                .filter(|path| path.starts_with(&root.path) && !is_hidden_above(path));
            let (held, exposed): (Vec<&PathBuf>, Vec<&PathBuf>) = below.partition(is_held);
            carved.exposed.extend(exposed.into_iter().cloned());
            carved.add(root.clone(), &held);
        }
        carved.grants.extend(kept.iter().cloned());
        carved
    }

    fn add(&mut self, grant: Grant, held: &[&PathBuf]) {
        let path = &grant.path;
        if held.iter().any(|hidden| path.starts_with(hidden)) {
            return;
        }
        if !held.iter().any(|hidden| hidden.starts_with(path)) {
            self.grants.push(grant);
            return;
        }
        let Ok(entries) = fs::read_dir(path) else {
            return;
        };
        self.listed.push(path.clone());
        self.seen.insert(path.clone(), changed_at(path));
        for entry in entries.flatten().take(MAX_ENTRIES) {
            // A link leads to a file with a grant of its own, or to one that is hidden.
            if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
                let entry = Grant {
                    path: entry.path(),
                    ..grant
                };
                self.add(entry, held);
            }
        }
    }

    /// Whether the folders have the same entries as before.
    pub(super) fn is_current(&self) -> bool {
        self.seen
            .iter()
            .all(|(folder, seen)| changed_at(folder) == *seen)
    }
}

fn changed_at(folder: &Path) -> (i64, i64) {
    fs::metadata(folder).map_or((0, 0), |found| (found.mtime(), found.mtime_nsec()))
}

/// Whether this user may make files in the folder.
pub(super) fn is_writable(folder: &Path) -> bool {
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
}

/// A path without links, and the links on the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) real: PathBuf,
    pub(super) links: Vec<Link>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Link {
    /// Its path has no other link in it.
    pub(super) path: PathBuf,
    pub(super) target: PathBuf,
}

/// Follows the links of an absolute path, as the kernel does (`path_resolution(7)`).
pub(super) fn locate(path: &Path) -> Location {
    const MAX_LINKS: usize = 40;
    let (mut real, mut links) = (PathBuf::new(), Vec::new());
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let mut parts = path.components();
        let Some(part) = parts.next() else { continue };
        let rest = parts.as_path().to_owned();
        left.push(rest);
        match part {
            Component::Normal(name) => {
                let next = real.join(name);
                match fs::read_link(&next) {
                    Ok(target) if links.len() < MAX_LINKS => {
                        left.push(target.clone());
                        links.push(Link { path: next, target });
                    }
                    _ => real = next,
                }
            }
            Component::ParentDir => _ = real.pop(),
            Component::RootDir => real = "/".into(),
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Location { real, links }
}

/// The real path of a file, even if it does not exist yet.
pub(super) fn real_path(path: &Path) -> PathBuf {
    locate(path).real
}

/// The grants at their real paths.
pub(super) fn real_grants(grants: &[Grant]) -> Vec<Grant> {
    let real = grants.iter().map(|grant| Grant {
        path: real_path(&grant.path),
        ..*grant
    });
    real.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(paths: &[PathBuf], base: &Path) -> Vec<String> {
        let mut names: Vec<String> = paths
            .iter()
            .map(|path| {
                path.strip_prefix(base)
                    .unwrap_or(path)
                    .display()
                    .to_string()
            })
            .collect();
        names.sort();
        names
    }

    fn carve(base: &Path, hidden: &[&str], kept: &[&str], open: Option<&str>) -> Carved {
        let below = |names: &[&str]| names.iter().map(|name| base.join(name)).collect::<Vec<_>>();
        let open = open.map(|name| base.join(name));
        let root = Grant {
            path: base.to_owned(),
            is_writable: true,
        };
        let must_stay_open =
            |folder: &Path, _: &Grant| open.as_ref().is_some_and(|open| folder.starts_with(open));
        let kept = below(kept).into_iter().map(|path| Grant {
            path,
            is_writable: true,
        });
        let kept: Vec<Grant> = kept.collect();
        Carved::new(&[root], &below(hidden), &kept, &must_stay_open)
    }

    #[test]
    fn siblings_of_a_hidden_path_are_granted() {
        let folder = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(folder.path()).unwrap();
        for name in ["data/venvs/a", "data/venvs/b", "work"] {
            fs::create_dir_all(base.join(name)).unwrap();
        }
        fs::write(base.join("data/ledger"), "x").unwrap();
        std::os::unix::fs::symlink(base.join("data"), base.join("link")).unwrap();
        let grants = |carved: &Carved| {
            let paths: Vec<PathBuf> = carved.grants.iter().map(|one| one.path.clone()).collect();
            names(&paths, &base)
        };

        let carved = carve(&base, &["data/ledger"], &[], None);
        assert_eq!(grants(&carved), ["data/venvs", "work"]);
        assert_eq!(names(&carved.listed, &base), ["", "data"]);
        let carved = carve(&base, &["data"], &["data/venvs/a"], None);
        assert_eq!(grants(&carved), ["data/venvs/a", "work"]);
        let carved = carve(&base, &["data/not-yet"], &[], None);
        assert_eq!(grants(&carved), ["data/ledger", "data/venvs", "work"]);
        assert!(carved.is_current() && carved.exposed.is_empty());
        fs::write(base.join("data/new"), "x").unwrap();
        assert!(!carved.is_current(), "a new file has no grant yet");
    }

    #[test]
    fn links_on_the_way_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(base.join("run/app")).unwrap();
        fs::create_dir(base.join("var")).unwrap();
        let link = |path: &str, target: &str| {
            let path = base.join(path);
            std::os::unix::fs::symlink(target, &path).unwrap();
            path
        };
        let (var, current) = (link("var/run", "../run"), link("run/current", "app"));
        let found = locate(&base.join("var/run/./current/../current/new"));
        assert_eq!(found.real, base.join("run/app/new"));
        let paths: Vec<PathBuf> = found.links.into_iter().map(|link| link.path).collect();
        assert_eq!(paths, [var, current.clone(), current]);
        link("run/loop", "loop");
        assert!(locate(&base.join("run/loop")).links.len() == 40);
    }

    #[test]
    fn a_folder_that_must_stay_open_exposes_what_it_holds() {
        let folder = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(base.join("work/data")).unwrap();
        let carved = carve(&base, &["work/data", "other"], &[], Some("work"));
        assert_eq!(names(&carved.exposed, &base), ["work/data"]);
        fs::create_dir_all(base.join("data/venvs")).unwrap();
        let carved = carve(&base, &["data", "data/venvs"], &[], Some("data"));
        assert!(carved.exposed.is_empty(), "its folder is hidden already");
        assert_eq!(carved.grants[0].path, base.join("work"));
    }
}
