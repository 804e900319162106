//! What the entries of a manifest get their sandboxes from.

use std::path::Path;

use super::config::SandboxSetting;
use super::entry::{EntrySandbox, OwnPaths};
use super::files::Sandboxes;

/// What the entries of one manifest are read with.
#[derive(Clone, Default)]
pub struct SandboxDefaults {
    /// `defaults.sandbox:`
    pub setting: SandboxSetting,
    /// What all entries share.
    pub shared: Sandboxes,
}

impl SandboxDefaults {
    /// The setting of an entry, with absolute paths.
    pub fn setting(&self, own: Option<SandboxSetting>, base: &Path) -> SandboxSetting {
        let mut setting = own.unwrap_or_else(|| self.setting.clone());
        if let SandboxSetting::Only(map) = &mut setting {
            for path in map.read.iter_mut().chain(&mut map.write) {
                let joined = base.join(&*path);
                *path = std::path::absolute(&joined).unwrap_or(joined);
            }
        }
        setting
    }

    /// The sandbox of an entry.
    pub fn entry(
        &self,
        setting: Option<SandboxSetting>,
        base: &Path,
        own: OwnPaths,
    ) -> EntrySandbox {
        EntrySandbox::new(self.setting(setting, base), own, self.shared.clone())
    }
}
