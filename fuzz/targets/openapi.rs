#![no_main]

#[path = "../checks/openapi.rs"]
mod openapi;

libfuzzer_sys::fuzz_target!(|text: &str| openapi::check(text));
