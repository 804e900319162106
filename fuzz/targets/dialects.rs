#![no_main]

#[path = "../checks/dialects.rs"]
mod dialects;

libfuzzer_sys::fuzz_target!(|data: &[u8]| dialects::check(data));
