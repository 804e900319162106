//! What a source has listed, as far as it can be used.

use std::collections::HashSet;
use std::sync::Arc;

use crate::blocking;
use crate::call::ToolName;
use crate::manifest::DeclaredSource;
use crate::schema::Schema;
use crate::tools::{Listed, Offer};

/// See the module.
#[derive(Default)]
pub(super) struct Listing {
    pub(super) offers: Vec<Offer>,
    /// What is odd about it, whatever the manifest says.
    pub(super) warnings: Vec<String>,
    /// Own names of tools that cannot be used.
    pub(super) left_out: Vec<String>,
}

impl Listing {
    /// Of the tools of a foreign source those that can be used: nobody here can mend the others. Of any other source
    /// all; what is wrong with one is for its author to see at once.
    pub(super) async fn of(declared: &Arc<DeclaredSource>, listed: Listed) -> Self {
        let Listed { tools: offers, warnings } = listed;
        let listing = Self { offers, warnings, left_out: Vec::new() };
        if !declared.settings.is_foreign() {
            return listing;
        }
        let declared = declared.clone();
        // Compiling the schemas of many tools takes a while.
        blocking::on_a_thread(move || listing.usable(&declared.rules.prefix)).await.unwrap_or_default()
    }

    fn usable(mut self, prefix: &str) -> Self {
        let mut seen = HashSet::new();
        for mut offer in std::mem::take(&mut self.offers) {
            let own = offer.name.clone();
            if let Err(why) = fault_of(&offer, prefix, !seen.insert(own.clone())) {
                let shown: String = own.chars().filter(|c| !c.is_control()).take(ToolName::MAX_LEN).collect();
                self.warnings.push(format!("tool `{shown}` is left out: {why}"));
                self.left_out.push(own);
                continue;
            }
            let output = offer.output_schema.clone().map(|schema| Schema::compile(Arc::new(schema)));
            if let Some(Err(fault)) = output {
                offer.output_schema = None;
                let why =
                    format!("tool `{own}`: outputSchema cannot be used, so results are held against nothing: {fault}");
                self.warnings.push(why);
            }
            self.offers.push(offer);
        }
        self
    }

    /// Whether another listing says the same of its tools; what runs them may be something else.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        let same = self.offers.len() == other.offers.len() && self.warnings == other.warnings;
        same && self.offers.iter().zip(&other.offers).all(|(one, other)| is_the_same(one, other))
    }

    /// Takes over what runs those tools of an earlier listing of the same source that are the same in this one: they
    /// keep their stacks then.
    pub(super) fn keep_runners(&mut self, before: &Self) {
        for offer in &mut self.offers {
            if let Some(same) = before.offers.iter().find(|before| is_the_same(before, offer)) {
                offer.runner = same.runner.clone();
            }
        }
    }
}

/// Why a tool cannot be used.
fn fault_of(offer: &Offer, prefix: &str, is_second: bool) -> Result<(), String> {
    if is_second {
        return Err("it is there twice; the first is served".into());
    }
    ToolName::parse(&format!("{prefix}{}", offer.name)).map_err(|error| {
        format!("{error}, `{prefix}` included; its server has to name it otherwise, `exclude` spares this warning")
    })?;
    let input = Schema::compile_input(Arc::new(offer.input_schema.clone()));
    input.map_err(|fault| format!("its inputSchema cannot be used: {fault}")).map(drop)
}

fn is_the_same(one: &Offer, other: &Offer) -> bool {
    let Offer { name, description, input_schema, output_schema, annotations, result_as_answer, runner: _ } = one;
    (name, description, input_schema) == (&other.name, &other.description, &other.input_schema)
        && (output_schema, annotations) == (&other.output_schema, &other.annotations)
        && *result_as_answer == other.result_as_answer
}
