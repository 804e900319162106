#![no_main]

#[path = "../checks/templates.rs"]
mod templates;

libfuzzer_sys::fuzz_target!(|text: &str| templates::check(text));
