//! `toolcrib key new`: a new key of a caller, and the entry of the manifest that accepts it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::{Subcommand, ValueEnum};
use serde_json::json;

use super::Failure;
use super::output::{print_json, print_line};
use crate::access::callers::hash_key;
use crate::app::Error;
use crate::manifest::check_caller_name;

/// The random part of a key, in bytes. As a key it is not guessable, and a fast hash of it protects
/// it.
const KEY_BYTES: usize = 32;
/// The beginning of a key, so that people and scanners tell it from its hash and from other keys.
const KEY_PREFIX: &str = "tcrib_";

/// What to do with keys.
#[derive(Subcommand)]
pub(super) enum KeyCommand {
    /// Print a new key, its hash, and the lines for the manifest.
    New {
        /// Name of the caller.
        name: String,
        /// Format of the output.
        #[arg(long, value_enum, default_value_t)]
        format: KeyFormat,
    },
}

/// How a key is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum KeyFormat {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

pub(super) fn run(command: KeyCommand) -> Result<(), Failure> {
    let KeyCommand::New { name, format } = command;
    if let Some(fault) = check_caller_name(&name) {
        return Err(Failure::Usage(format!("toolcrib: `{name}`: {fault}")));
    }
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes).map_err(Error::Random)?;
    let key = format!("{KEY_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
    let hash = hex::encode(hash_key(&key));
    match format {
        KeyFormat::Json => print_json(&json!({"name": name, "key": key, "key_sha256": hash})),
        KeyFormat::Text => print_line(&format!(
            "key         {key}\n\
             key_sha256  {hash}\n\n\
             The key is stored nowhere: give it to the caller now. Add these lines to the manifest:\n\n\
             callers:\n  - name: {}\n    key_sha256: {hash}",
            quote_name(&name)
        )),
    }
    Ok(())
}

/// The name as YAML reads it as text: `7` and `true` would be other types.
fn quote_name(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&name.to_ascii_lowercase().as_str());
    if is_plain {
        name.to_owned()
    } else {
        format!("\"{name}\"")
    }
}
