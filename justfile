# Tasks for developers: `just --list`. The program is `rust-just` on PyPI.

# Puts small faults into the code, one at a time, and lists those that no test notices. Takes hours; ARGS go to cargo-mutants:
# `just mutants --shard 0/20`, `just mutants --file src/names.rs`, `just mutants --in-diff FILE`.
mutants *ARGS:
    command -v cargo-mutants >/dev/null || cargo install --locked cargo-mutants
    cargo mutants --output target {{ARGS}}

# Writes a list of all packages in the program, target/toolcrib-sbom.json (CycloneDX), from the lock file. Builds nothing.
sbom:
    command -v cargo-cyclonedx >/dev/null || cargo install --locked cargo-cyclonedx
    cargo cyclonedx --format json --override-filename toolcrib-sbom
    rm crates/toolcrib-macros/toolcrib-sbom.json
    mkdir -p target && mv toolcrib-sbom.json target/
