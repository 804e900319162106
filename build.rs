//! Compresses the built files of the console, and takes the files of Swagger UI that the page of the
//! API loads out of the vendored archive. Those stay compressed: the bundle alone would be 1.5 MB of
//! the program.

use std::error::Error;
use std::io::{Cursor, Read};
use std::path::Path;
use std::{env, fs};

use flate2::{Compression, GzBuilder};
use utoipa_swagger_ui_vendored::SWAGGER_UI_VENDORED;
use zip::{CompressionMethod, ZipArchive};

/// As in `src/http/docs_files.rs`.
const FILES: [&str; 2] = ["swagger-ui.css", "swagger-ui-bundle.js"];

/// The built files of the console, as in `src/http/console.rs`.
const CONSOLE_FILES: [&str; 4] = ["index.html", "console.js", "console.css", "icon.svg"];

/// The header of a gzip file without a name and a time (RFC 1952).
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

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
    let mut archive = ZipArchive::new(Cursor::new(SWAGGER_UI_VENDORED))?;
    for file in FILES {
        let compressed = gzip_from_archive(&mut archive, file)?;
        fs::write(Path::new(&folder).join(format!("{file}.gz")), compressed)?;
    }
    Ok(())
}

/// The file as gzip. The archive has it as the same compressed data between other headers.
fn gzip_from_archive(
    archive: &mut ZipArchive<Cursor<&[u8]>>,
    file: &str,
) -> Result<Vec<u8>, Box<dyn Error>> {
    let suffix = format!("/dist/{file}");
    let place = archive
        .file_names_raw()
        .position(|name| name.ends_with(suffix.as_bytes()))
        .ok_or_else(|| format!("Swagger UI has no {file}"))?;
    let mut entry = archive.by_index_raw(place)?;
    if entry.compression() != CompressionMethod::DEFLATE {
        return Err(format!("{file} is not compressed with deflate").into());
    }
    let mut gzip = GZIP_HEADER.to_vec();
    entry.read_to_end(&mut gzip)?;
    gzip.extend(entry.crc32().to_le_bytes());
    gzip.extend(u32::try_from(entry.size())?.to_le_bytes());
    Ok(gzip)
}
