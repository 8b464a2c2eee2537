// The JavaScript of examples/web against the same runtime on this machine, and against bad input.
//     PENSTOCK_WORK=FOLDER node --test tests/web     FOLDER: what tools/test_runtime.sh made, with wasm/ and native/
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

import { denormalise, loadPenstock, normalise, PenstockError } from "../../examples/web/penstock.js";

const work = process.env.PENSTOCK_WORK;
const released = new URL("../released/0.1/", import.meta.url);
const model = (name) => readFileSync(new URL(`${name}.safetensors`, released));
const wasm = readFileSync(`${work}/wasm/penstock.wasm`);
const penstock = await loadPenstock(wasm);
const rows = readFileSync(`${work}/rows`, "utf8").split(/\s+/).filter(Boolean).map(Number);

/** The numbers of a program that test_runtime.sh built for this machine. */
function native(program, name, input) {
  const file = new URL(`${name}.safetensors`, released).pathname;
  const done = spawnSync(`${work}/native/${program}`, [file], { input, encoding: "utf8" });
  assert.equal(done.status, 0, done.stderr);
  return done.stdout.split(/\s+/).filter(Boolean).map(Number);
}

function assertClose(got, want) {
  assert.equal(got.length, want.length);
  assert.ok(want.length > 0);
  got.forEach((value, i) => {
    const most = 1e-6 * Math.max(1, Math.abs(want[i]));
    assert.ok(Math.abs(value - want[i]) <= most, `${value} instead of ${want[i]} at ${i}`);
  });
}

/** Steps through `rows`, as examples/runtime/stream.c does: values of a table in, forecasts in its units out. */
function forecasts(opened) {
  const session = opened.openSession(), { inputs, targets } = opened, found = [];
  for (let at = 0; at + inputs.length <= rows.length; at += inputs.length) {
    const outputs = session.step(inputs.map((column, i) => normalise(column, rows[at + i])));
    outputs.forEach((value, i) => found.push(denormalise(targets[i % targets.length], value)));
  }
  session.close();
  return found;
}

const refuses = (use, status, text) =>
  assert.throws(use, (error) => error instanceof PenstockError && error.status === status && text.test(error.message));

for (const name of ["series", "ensemble", "own_cell", "lstm"]) {
  test(`${name} answers as on this machine`, () => {
    const opened = penstock.openModel(model(name));
    assertClose(forecasts(opened), native("stream", name, rows.join("\n")));
    opened.close();
  });
}

test("a network answers as on this machine", () => {
  const opened = penstock.openNetwork(model("network")), session = opened.openSession(), found = [];
  const { inputs } = opened.info;
  for (let at = 0; at + inputs <= rows.length; at += inputs) found.push(...session.step(rows.slice(at, at + inputs)));
  assertClose(found, native("network", "network", rows.join("\n")));
  assert.deepEqual(opened.tensors, [{ name: "x", extents: [1, 16], first: 0, size: 16 }]);
  session.close();
  opened.close();
});

test("a model of text answers as on this machine", () => {
  const text = readFileSync(new URL("text.txt", released));
  const opened = penstock.openModel(model("text")), session = opened.openSession();
  assert.equal(opened.info.task, "language");
  const likeliest = [...text].map((byte) => {
    const logits = session.stepToken(byte);
    return logits.indexOf(Math.max(...logits));
  });
  assert.deepEqual(likeliest, native("stream", "text", text));
  session.close();
  opened.close();
});

test("what a model says of itself", () => {
  const opened = penstock.openModel(model("series"));
  assert.match(penstock.version, /^\d+\.\d+\.\d+$/);
  const { task, inputs, outputs, targets, horizon } = opened.info;
  assert.deepEqual([task, inputs, outputs, targets, horizon], ["forecast", 5, 4, 2, 2]);
  assert.deepEqual(opened.inputs.map(({ name, isValue }) => [name, isValue]),
    [["sales", true], ["visits", true], ["price", true], ["day", false], ["day", false]]);
  assert.equal(opened.targets[0].mean, 25.97679687499998);
  opened.close();
});

test("a state goes on in another session and another instance", async () => {
  const other = await loadPenstock(new WebAssembly.Module(wasm));
  const opened = penstock.openModel(model("lstm")), session = opened.openSession();
  for (let i = 0; i < 10; ++i) session.step([i]);
  const elsewhere = other.openModel(model("lstm")), third = elsewhere.openSession(), copy = session.clone();
  third.restore(session.save());
  const want = session.step([0.5]);
  assert.deepEqual(third.step([0.5]), want);
  assert.deepEqual(copy.step([0.5]), want);
  session.reset();
  assert.notDeepEqual(session.step([0.5]), want);
  session.reset();
  third.reset();
  session.prewarm(null, 3);
  for (let i = 0; i < 3; ++i) third.step([0]);
  assert.deepEqual(session.save(), third.save());
});

test("bad input is refused in the runtime's words, and the session goes on", () => {
  const opened = penstock.openModel(model("series")), session = opened.openSession();
  const row = [0.1, 0.2, 0.3, 0.4, 0.5], want = opened.openSession().step(row);
  refuses(() => session.step(null), "invalid argument", /features/);
  refuses(() => session.step([1, 2]), "invalid argument", /5/);
  refuses(() => session.step(new Float32Array(1 << 20)), "invalid argument", /5/);
  refuses(() => session.step(row, new Float32Array(3)), "invalid argument", /4/);
  refuses(() => session.step(row, new Float32Array(1 << 20)), "invalid argument", /4/);
  refuses(() => session.step(row, null), "invalid argument", /outputs/);
  refuses(() => session.step([0, NaN, 0, 0, 0]), "invalid argument", /nan/i);
  refuses(() => session.step(["a", "b", "c", "d", "e"]), "invalid argument", /nan/i);
  refuses(() => session.stepToken(3), "invalid argument", /token/);
  refuses(() => session.restore(null), "invalid argument", /null/);
  refuses(() => session.restore(new Uint8Array(7)), "bad input", /./);
  refuses(() => opened.classes, "invalid argument", /class/);
  assert.deepEqual(session.step(row), want);
});

test("what is closed is refused", () => {
  const opened = penstock.openModel(model("lstm")), session = opened.openSession();
  opened.close();
  refuses(() => opened.close(), "invalid argument", /not open/);
  refuses(() => opened.openSession(), "invalid argument", /not open/);
  assert.equal(session.step([1]).length, 1);  // a session goes on without its model
  session.close();
  for (const call of ["close", "step", "save", "reset", "clone"]) {
    refuses(() => session[call]([1]), "invalid argument", /not open/);
  }
});

test("files that are no models are refused", () => {
  refuses(() => penstock.openModel(null), "invalid argument", /null/);
  refuses(() => penstock.openModel(new Uint8Array(0)), "bad input", /safetensors/);
  refuses(() => penstock.openModel(model("network")), "incompatible", /penstock_network_open/);
  refuses(() => penstock.openNetwork(model("lstm")), "incompatible", /penstock_model_open/);
  refuses(() => penstock.openNetwork(model("network"), { x: [1, 8] }), "invalid argument", /\[1, 16\], not \[1, 8\]/);
  refuses(() => penstock.openNetwork(model("network"), { "größe": [1] }), "invalid argument", /./);
  const whole = model("ensemble");
  for (let size = 0; size < whole.length; size += 97) {
    refuses(() => penstock.openModel(whole.subarray(0, size)), "bad input", /./);
  }
  for (let place = 0; place < whole.length; place += 97) {
    const damaged = Uint8Array.from(whole);
    damaged[place] ^= 4;
    assert.throws(() => penstock.openModel(damaged), PenstockError);
  }
});

test("closing gives the memory back", () => {
  const use = () => {
    const opened = penstock.openModel(model("ensemble")), session = opened.openSession();
    session.step([0, 0, 0, 0, 0]);
    opened.close();
    session.close();
    assert.throws(() => penstock.openModel(model("ensemble").subarray(0, 8000)));
  };
  use();
  const before = penstock.exports.memory.buffer.byteLength;
  for (let i = 0; i < 2000; ++i) use();
  assert.equal(penstock.exports.memory.buffer.byteLength, before);
});

test("a module that is not there is refused", async () => {
  const missing = new Response("", { status: 404, statusText: "Not Found" });
  await assert.rejects(loadPenstock(missing), /^PenstockError: cannot read .*: 404 Not Found$/);
});

test("the module is small", () => assert.ok(gzipSync(wasm, { level: 9 }).length < 300e3));
