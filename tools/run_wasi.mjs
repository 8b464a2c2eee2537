// Runs a WebAssembly program that was built for WASI, with the files of the current folder:
//     node --no-warnings tools/run_wasi.mjs PROGRAM [ARGUMENT...]
import { readFile } from "node:fs/promises";
import { argv } from "node:process";
import { WASI } from "node:wasi";

const args = argv.slice(2);
const wasi = new WASI({ version: "preview1", args, preopens: { ".": "." }, returnOnExit: true });
const imports = { wasi_snapshot_preview1: wasi.wasiImport };
const { instance } = await WebAssembly.instantiate(await readFile(args[0]), imports);
process.exitCode = wasi.start(instance);
