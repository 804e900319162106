//! What tests of several languages need.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::config::{ModulePath, ModuleSettings, WorkerRange};
use super::language::Language;
use crate::call::JsonObject;
use crate::kinds::SandboxSetting;

/// Settings of the module in this file: one worker, without a sandbox.
pub(in crate::sources) fn settings_for_tests(language: Language, file: &Path) -> ModuleSettings {
    let folder = file.parent().unwrap();
    ModuleSettings {
        language,
        name: "probe".into(),
        module: ModulePath::File(file.into()),
        program: language.kind().as_str().into(),
        requirements: None,
        workers: WorkerRange::exactly(1),
        functions: None,
        include: Vec::new(),
        exclude: Vec::new(),
        object: None,
        share: false,
        init: JsonObject::new(),
        environment: BTreeMap::new(),
        sandbox: SandboxSetting::None,
        workdir: folder.into(),
        package_dir: folder.join("packages"),
        start_timeout: Duration::from_secs(30),
    }
}
