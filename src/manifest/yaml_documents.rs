//! Loads the documents of a YAML text in one pass. Nesting is bounded while it goes on, because
//! values are converted and dropped by recursion: a deeper one could overflow the stack.

use std::collections::HashMap;

use saphyr::{MarkedYaml, ScanError, YamlLoader};
use saphyr_parser::{Event, Parser, SpannedEventReceiver as _};

/// The deepest nesting.
pub(super) const DEEPEST: usize = 128;

/// Why a text cannot be loaded.
pub(super) enum LoadFault {
    /// The values are nested too deeply in this line, aliases included.
    TooDeep(usize),
    /// The text is not YAML.
    NotYaml(ScanError),
}

/// Loads all documents of the text.
pub(super) fn load(text: &str) -> Result<Vec<MarkedYaml<'_>>, LoadFault> {
    let (mut loader, mut nesting) = (YamlLoader::default(), Nesting::default());
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(LoadFault::NotYaml)?;
        if nesting.follow(&event) > DEEPEST {
            return Err(LoadFault::TooDeep(span.start.line().max(1)));
        }
        loader.on_event(event, span);
        if let Some(error) = loader.error() {
            return Err(LoadFault::NotYaml(error.clone()));
        }
    }
    Ok(loader.into_documents())
}

/// The open lists and maps.
#[derive(Default)]
struct Nesting {
    /// For each its anchor, and the height of the highest value in it.
    open: Vec<(usize, usize)>,
    heights: HashMap<usize, usize>,
}

impl Nesting {
    /// How deep the value of the event reaches.
    fn follow(&mut self, event: &Event<'_>) -> usize {
        let height = match event {
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                self.open.push((*anchor, 0));
                0
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let (anchor, below) = self.open.pop().unwrap_or_default();
                // The number of a value without an anchor is 0.
                if anchor != 0 {
                    self.heights.insert(anchor, below + 1);
                }
                below + 1
            }
            Event::Alias(anchor) => self.heights.get(anchor).copied().unwrap_or_default(),
            _ => return 0,
        };
        if let Some((_, highest)) = self.open.last_mut() {
            *highest = height.max(*highest);
        }
        self.open.len() + height
    }
}
