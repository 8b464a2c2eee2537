// Times one chunk of silero-vad in Node, in microseconds: docs/browser.md has the numbers.
//     node bench/time_voice.mjs build/web/penstock.wasm build/web/models/voice.safetensors
import { readFile } from "node:fs/promises";
import { argv } from "node:process";

import { loadPenstock } from "../examples/web/penstock.js";
import { CHUNK, VoiceDetector } from "../examples/web/voice.js";

const [module, network] = await Promise.all(argv.slice(2, 4).map((path) => readFile(path)));
const detector = new VoiceDetector(await loadPenstock(module), network);
const samples = new Float32Array(CHUNK), times = [];
for (let chunk = 0; chunk < 3000; ++chunk) {
  for (let i = 0; i < CHUNK; ++i) samples[i] = 0.3 * (Math.random() - 0.5);
  const began = performance.now();
  detector.push(samples, () => {});
  times.push(1000 * (performance.now() - began));
}
times.sort((a, b) => a - b);
console.log(`smallest ${times[0].toFixed(1)}, median ${times[times.length / 2].toFixed(1)} microseconds a chunk`);
