#![no_main]

#[path = "../checks/databases.rs"]
mod databases;

libfuzzer_sys::fuzz_target!(|data: &[u8]| databases::check(data));
