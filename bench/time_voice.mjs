// Times one chunk of silero-vad in Node, in microseconds: docs/browser.md has the numbers.
//     node bench/time_voice.mjs PENSTOCK.wasm VOICE.safetensors [ONNXRUNTIME_WEB MODEL.onnx...]
// ONNXRUNTIME_WEB is the folder of that package of npm (node_modules/onnxruntime-web), MODEL.onnx a published file. It
// takes turns of 20 chunks with Penstock, on one thread, and its outputs are compared.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { basename, resolve } from "node:path";
import { argv, version } from "node:process";

import { loadPenstock } from "../examples/web/penstock.js";
import { CHUNK, CONTEXT, SAMPLE_RATE, VoiceDetector } from "../examples/web/voice.js";

const CHUNKS = 3000, TURN = 20;
const [wasm, network, folder, ...models] = argv.slice(2);
const detector = new VoiceDetector(await loadPenstock(await readFile(wasm)), await readFile(network));
const contenders = [{
  name: "Penstock",
  run(samples) {
    let answer;
    detector.push(samples, (probability) => { answer = probability; });
    return answer;
  },
}];

if (folder) {
  const ort = createRequire(import.meta.url)(resolve(folder));
  ort.env.wasm.numThreads = 1;
  ort.env.logLevel = "error";
  const release = JSON.parse(await readFile(resolve(folder, "package.json"), "utf8")).version;
  for (const model of models) {
    const options = { executionProviders: ["wasm"], logSeverityLevel: 3 };
    const session = await ort.InferenceSession.create(await readFile(model), options);
    const input = new Float32Array(CONTEXT + CHUNK);
    const feeds = {
      input: new ort.Tensor("float32", input, [1, CONTEXT + CHUNK]),
      state: new ort.Tensor("float32", new Float32Array(2 * 128), [2, 1, 128]),
    };
    const rate = BigInt64Array.of(BigInt(SAMPLE_RATE));
    if (session.inputNames.includes("sr")) feeds.sr = new ort.Tensor("int64", rate, []);
    contenders.push({
      name: `ONNX Runtime Web ${release}, ${basename(model)}`,
      async run(samples) {
        input.set(samples, CONTEXT);
        const { output, stateN } = await session.run(feeds);
        feeds.state = stateN;
        input.copyWithin(0, CHUNK);
        return output.data[0];
      },
    });
  }
}

const sample = () => 0.3 * (Math.random() - 0.5);
const chunks = Array.from({ length: CHUNKS }, () => Float32Array.from({ length: CHUNK }, sample));
for (const contender of contenders) Object.assign(contender, { times: [], answers: [] });
for (let turn = 0; turn < CHUNKS; turn += TURN) {
  for (const { run, times, answers } of contenders) {
    for (const samples of chunks.slice(turn, turn + TURN)) {
      const began = performance.now();
      const answer = run(samples);
      answers.push(answer instanceof Promise ? await answer : answer);
      times.push(1000 * (performance.now() - began));
    }
  }
}
const [ours] = contenders;
for (const { times } of contenders) times.sort((a, b) => a - b);
const at = (times, part) => times[Math.floor(part * times.length)];
console.log(`Node ${version}, ${CHUNKS} chunks, microseconds: smallest, quartile, median; factors of smallest and median`);
for (const { name, times, answers } of contenders) {
  answers.forEach((answer, i) => assert.ok(Math.abs(answer - ours.answers[i]) < 1e-5, `${name}: chunk ${i} differs`));
  const numbers = [0, 0.25, 0.5].map((part) => at(times, part).toFixed(1)).join(", ");
  const factors = [0, 0.5].map((part) => (at(times, part) / at(ours.times, part)).toFixed(2)).join(", ");
  console.log(`${name}: ${numbers}; ${factors}`);
}
