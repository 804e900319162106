#![no_main]

#[path = "../checks/ledger.rs"]
mod ledger;

libfuzzer_sys::fuzz_target!(|damages: Vec<ledger::Damage>| ledger::check(damages));
