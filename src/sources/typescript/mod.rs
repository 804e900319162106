//! The `typescript` kind: how the workers of TypeScript and JavaScript modules are started.
//!
//! - `runtime`: finds Node.js, Deno or Bun
//! - `program`: gives a worker its program and arguments
//! - `packages`: installs the packages of a `package.json`
//! - the folder `worker/`: the program of a worker, in JavaScript
//!
//! `sources/workers/` has everything else.

mod packages;
mod program;
mod runtime;

pub(super) use self::program::TypescriptRuntime;

#[cfg(test)]
mod tests;
