//! Compresses the built files of the console.

use std::error::Error;
use std::io::Read;
use std::path::Path;
use std::{env, fs};

use flate2::{Compression, GzBuilder};

/// The built files of the console, as in `src/http/pages/console.rs`.
const CONSOLE_FILES: [&str; 4] = ["index.html", "console.js", "console.css", "icon.svg"];

#[expect(
    clippy::disallowed_methods,
    reason = "a build script gets its folder from the environment"
)]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    let folder = env::var("OUT_DIR")?;
    for file in CONSOLE_FILES {
        let path = format!("console/dist/{file}");
        println!("cargo:rerun-if-changed={path}");
        let content = fs::read(&path).map_err(|error| format!("{path}: {error}"))?;
        let mut compressed = Vec::new();
        GzBuilder::new()
            .read(&content[..], Compression::best())
            .read_to_end(&mut compressed)?;
        fs::write(Path::new(&folder).join(format!("{file}.gz")), compressed)?;
    }
    Ok(())
}
