//! `toolcrib types`: types of all tools, for callers in other languages.

use super::Failure;
use super::client::{ServerArgs, successful};
use super::manifest_file::ManifestArg;
use super::output::{is_terminal, print_line, print_note};
use super::tools::{fail_on_faults, load_tools, native_list};
use crate::environment::Environment;
use crate::formats::types::{Language, render_types};

/// Arguments of `types`.
#[derive(clap::Args)]
pub(super) struct TypesArgs {
    #[command(flatten)]
    manifest: ManifestArg,
    #[command(flatten)]
    server: ServerArgs,
    /// The language of the callers.
    #[arg(long, value_enum, default_value_t)]
    language: Language,
}

pub(super) async fn run(args: TypesArgs, environment: &Environment) -> Result<(), Failure> {
    let (listed, faults) = match args.server.client()? {
        Some(client) => (
            successful(client.get("/tools?discovery=off").await?, is_terminal())?,
            Vec::new(),
        ),
        None => {
            let declared = load_tools(&args.manifest, environment).await?;
            declared
                .warnings
                .iter()
                .for_each(|warning| print_note(warning));
            (native_list(&declared.tools), declared.faults)
        }
    };
    let tools = listed["tools"].as_array().map_or(&[][..], Vec::as_slice);
    print_line(render_types(args.language, tools).trim_end());
    fail_on_faults(faults)
}
