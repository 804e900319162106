#!/usr/bin/env node
// Packs the client and the platform package with a static binary:
//
//     node/build BINARY [FOLDER]      writes toolcrib-VERSION.tgz and toolcrib-linux-ARCH-VERSION.tgz (default: dist)
import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

// e_machine of an ELF file, and Node's name of the machine.
const MACHINES = { 62: "x64", 183: "arm64" };

function stop(message) {
  console.error(message);
  process.exit(1);
}

const [binary, target = "dist"] = process.argv.slice(2);
if (!binary) stop("usage: node/build BINARY [FOLDER]");
const bytes = readFileSync(binary);
if (bytes.toString("latin1", 0, 4) !== "\x7fELF") stop("the binary is not an ELF file for Linux");
if (bytes.includes("/ld-linux") || bytes.includes("/ld-musl")) stop("the binary is linked dynamically; build it with the target-feature crt-static");
const arch = MACHINES[bytes.readUInt16LE(18)] ?? stop("the binary is for a machine other than x86_64 and aarch64");

const here = dirname(fileURLToPath(import.meta.url));
const { version, license } = JSON.parse(readFileSync(join(here, "package.json"), "utf8"));
const folder = mkdtempSync(join(tmpdir(), "toolcrib-"));
try {
  mkdirSync(join(folder, "bin"));
  copyFileSync(binary, join(folder, "bin/toolcrib"));
  chmodSync(join(folder, "bin/toolcrib"), 0o755);
  const name = `@toolcrib/linux-${arch}`;
  const manifest = { name, version, license, description: `The program of Toolcrib for Linux on ${arch}.`, os: ["linux"], cpu: [arch], files: ["bin"] };
  writeFileSync(join(folder, "package.json"), JSON.stringify(manifest, null, 2));
  mkdirSync(target, { recursive: true });
  for (const source of [here, folder]) {
    const output = execFileSync("npm", ["pack", "--json", "--pack-destination", resolve(target)], { cwd: source, encoding: "utf8" });
    console.log(join(target, JSON.parse(output)[0].filename.replace("@", "").replace("/", "-")));
  }
} finally {
  rmSync(folder, { recursive: true });
}
