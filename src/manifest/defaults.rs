//! The values of settings that the manifest does not contain.

use std::path::PathBuf;

use super::{DEFAULT_CACHE_BYTES, DEFAULT_LEDGER, DEFAULT_LISTEN, Defaults, Manifest};
use crate::call::{CallSettings, Capture};
use crate::ledger;
use crate::manifest::ServerSettings;

impl Default for Manifest {
    fn default() -> Self {
        Self {
            server: ServerSettings::default(),
            listen: DEFAULT_LISTEN.into(),
            ledger: ledger::Settings {
                url: DEFAULT_LEDGER.into(),
                base: PathBuf::new(),
                durability: ledger::Durability::default(),
                when_down: ledger::WhenDown::default(),
                retention: None,
                max_bytes: None,
                accept_loss: false,
            },
            capture: Capture::default(),
            reference_above: None,
            digest_key: None,
            approvals: None,
            telemetry: None,
            cache_bytes: DEFAULT_CACHE_BYTES,
            redis: None,
            calls: CallSettings::default(),
            defaults: Defaults::default(),
            callers: Vec::new(),
            toolsets: Default::default(),
            tool_lists: Vec::new(),
            tools: Vec::new(),
            sources: Vec::new(),
            pins: None,
            replaced_natives: Vec::new(),
            secrets: Vec::new(),
            warnings: Vec::new(),
        }
    }
}
