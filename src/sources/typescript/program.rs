//! Gives a worker its program and arguments.

use std::path::{Path, PathBuf};

use async_trait::async_trait;

use super::packages::install_packages;
use super::runtime::{Flavor, query_runtime};
use crate::sources::workers::{ModulePath, Setup, WorkerProgram, WorkerRuntime};

/// Reads the other files from standard input, and runs them.
const BOOT_SCRIPT: &str = include_str!("worker/boot.cjs");

/// Pairs of the path of a file in `worker/` and its text, listed by `build.rs`.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/typescript_worker.rs"));

/// What Node.js reads in the folder of a file and in those above it.
const PROJECT_FILES: [&str; 3] = ["node_modules", "package.json", "tsconfig.json"];

/// Workers in JavaScript.
pub(in crate::sources) struct TypescriptRuntime;

#[async_trait]
impl WorkerRuntime for TypescriptRuntime {
    async fn prepare(&self, setup: &Setup<'_>) -> Result<WorkerProgram, String> {
        let settings = setup.settings;
        let program = setup.locate_program(&settings.program, "runtime")?;
        let runtime = query_runtime(&program, setup).await?;
        let packages = match &settings.requirements {
            None => None,
            Some(_) if runtime.flavor == Flavor::Deno => {
                return Err("`requirements` does not work with Deno: run `deno install` beside the module, and leave \
                            `requirements` out".into());
            }
            Some(file) => Some(install_packages(&runtime, file, setup).await?),
        };
        let folder = match &settings.module {
            ModulePath::File(file) => file.parent().unwrap_or(Path::new("/")),
            ModulePath::Name(_) => &settings.workdir,
        };
        let mut needed = project_files(folder);
        needed.extend(packages.clone());
        Ok(WorkerProgram {
            arguments: runtime
                .arguments()
                .iter()
                .chain(&[BOOT_SCRIPT])
                .map(Into::into)
                .collect(),
            path: runtime.program,
            boot_message: WorkerProgram::boot_message(FILES),
            needed,
            // Bun, and `require`, search packages there. `import` of Node.js does not.
            variables: packages
                .iter()
                .map(|folder| ("NODE_PATH", folder.join("node_modules").into()))
                .collect(),
            packages,
        })
    }
}

/// The packages and settings that apply to a file in this folder.
fn project_files(folder: &Path) -> Vec<PathBuf> {
    let paths = folder
        .ancestors()
        .flat_map(|folder| PROJECT_FILES.map(|name| folder.join(name)));
    paths.filter(|path| path.exists()).collect()
}
