#![no_main]

#[path = "../checks/manifest.rs"]
mod manifest;

libfuzzer_sys::fuzz_target!(|text: &str| manifest::check(text));
