#![no_main]

#[path = "../checks/schema.rs"]
mod schema;

libfuzzer_sys::fuzz_target!(|text: &str| schema::check(text));
