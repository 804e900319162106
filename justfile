# Tasks for developers: `just --list`. The program is `rust-just` on PyPI.

# The quick loop: types, formatting, lints, and the unit tests that start no other program, with fewer random cases.
check:
    ./tests/run --quick

# Every test. ARGS go to tests/run, such as `just test outside docs`.
test *ARGS:
    ./tests/run {{ARGS}}

# Kills, full disks and the like, done to the release binary. `just faults --long` takes hours.
faults *ARGS:
    ./tests/run faults {{ARGS}}

# Benchmarks, as ratios to a bare handler in the same run. `just bench --help` lists them.
bench *ARGS:
    benches/run {{ARGS}}

# The CPU instructions of each kind of call, compared with benches/baseline.json. `just guard --update "the reason"` renews it.
guard *ARGS:
    benches/guard {{ARGS}}

# The reference pages that are made from code, then the book in target/book.
docs:
    cargo build
    cargo run --quiet -- openapi > openapi/openapi.json
    python3 tests/docs/manifest_reference.py target/debug/toolcrib
    python3 tests/docs/architecture_picture.py
    python3 tests/docs/llms_txt.py
    python3 tests/docs/overview_picture.py
    command -v mdbook >/dev/null || cargo install --locked mdbook
    python3 tests/docs/build_book.py

# What CI runs.
ci:
    .ci/run

# ARGS go to cargo-mutants, such as `--shard 0/20`, `--file src/text/names.rs` or `--in-diff FILE`. Takes hours.
# Puts small faults into the code and lists those that no test notices.
mutants *ARGS:
    command -v cargo-mutants >/dev/null || cargo install --locked cargo-mutants
    cargo mutants --workspace --output target {{ARGS}}

# Runs the fuzz targets, such as `just fuzz`, `just fuzz manifest 1200` or `just fuzz 10`. The default is all of them, 60 seconds each.
fuzz *ARGS:
    fuzz/run {{ARGS}}

# Everything that ships, for this platform, in target/dist-out. ARGS go to dist/build, such as `just dist --only deb`.
dist *ARGS:
    dist/build {{ARGS}}

# Writes a list of all packages in the program, target/dist-out/toolcrib-sbom.json (CycloneDX), from the lock files. Builds nothing.
sbom:
    dist/build --only sbom
