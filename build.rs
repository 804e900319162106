//! Compresses the built files of the console and the OpenAPI document, and lists the files of the
//! workers.

use std::error::Error;
use std::io::Read;
use std::path::Path;
use std::{env, fs};

use flate2::{Compression, GzBuilder};

/// The built files of the console, as in `src/http/pages/console.rs`, and the document.
const COMPRESSED: [&str; 5] = [
    "console/dist/index.html",
    "console/dist/console.js",
    "console/dist/console.css",
    "console/dist/icon.svg",
    "openapi/openapi.json",
];

#[expect(
    clippy::disallowed_methods,
    reason = "a build script gets its folder from the environment"
)]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    let folder = env::var("OUT_DIR")?;
    for path in COMPRESSED {
        println!("cargo:rerun-if-changed={path}");
        let file = path.rsplit('/').next().unwrap_or_default();
        let content = fs::read(path).map_err(|error| format!("{path}: {error}"))?;
        let mut compressed = Vec::new();
        GzBuilder::new()
            .read(&content[..], Compression::best())
            .read_to_end(&mut compressed)?;
        fs::write(Path::new(&folder).join(format!("{file}.gz")), compressed)?;
    }
    list_worker_files("python", "py", Path::new(&folder))?;
    list_worker_files("typescript", "cjs", Path::new(&folder))
}

/// Writes what `program.rs` or `runtime.rs` of a language embeds: the path and the text of each file of the worker,
/// but of the script that reads them.
fn list_worker_files(language: &str, ending: &str, out: &Path) -> Result<(), Box<dyn Error>> {
    let root = fs::canonicalize(format!("src/sources/{language}/worker"))?;
    println!("cargo:rerun-if-changed={}", root.display());
    let (mut folders, mut files) = (vec![root.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let is_code = path
                .extension()
                .is_some_and(|extension| extension == ending);
            let is_boot = path.file_stem().is_some_and(|name| name == "boot");
            if path.is_dir() {
                folders.push(path);
            } else if is_code && !is_boot {
                let name = path.strip_prefix(&root)?;
                files.push(format!("({name:?}, include_str!({path:?}))"));
            }
        }
    }
    files.sort();
    let list = format!("&[{}]", files.join(", "));
    Ok(fs::write(out.join(format!("{language}_worker.rs")), list)?)
}
