#![no_main]

#[path = "../checks/json_repair.rs"]
mod json_repair;

libfuzzer_sys::fuzz_target!(|text: &str| json_repair::check(text));
