// The page: three models, each with its controls. A model that is missing or fails says so in its own section.
import { denormalise, loadPenstock, normalise } from "./penstock.js";
import { format, plot } from "./plot.js";
import { CHUNK, SAMPLE_RATE, VoiceDetector } from "./voice.js";

const element = (name) => document.getElementById(name);
const bytesOf = async (path) => {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${path} is not there: examples/web/build.sh makes it`);
  return response.arrayBuffer();
};

function say(section, text, isError = false) {
  const answer = element(`${section}-answer`);
  answer.textContent = text;
  answer.classList.toggle("error", isError);
}

/** Returns a handler that shows in its section what fails in `use`. */
const shown = (section, use) => async (event) => {
  try {
    await use(event);
  } catch (error) {
    say(section, error.message, true);
  }
};

// Voice activity.

const MOST_SHOWN = 320;  // about ten seconds

function showVoice(probabilities, closing) {
  const count = Math.max(MOST_SHOWN, probabilities.length);
  plot(element("voice-plot"), [{ values: probabilities, colour: "--line" }], { count, low: 0, high: 1 });
  const seconds = (chunks) => format(chunks.length * CHUNK / SAMPLE_RATE);
  const speech = probabilities.filter((probability) => probability > 0.5);
  say("voice", `speech in ${seconds(speech)} of ${seconds(probabilities)} s${closing}`);
}

async function listen(module, network) {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  const context = new AudioContext({ sampleRate: SAMPLE_RATE });
  await context.audioWorklet.addModule("voice_worklet.js");
  const options = { numberOfOutputs: 0, processorOptions: { module, network } };
  const detector = new AudioWorkletNode(context, "voice", options);
  context.createMediaStreamSource(stream).connect(detector);
  const heard = [];
  detector.onprocessorerror = () => say("voice", "the audio worklet failed; the console has its reason", true);
  detector.port.onmessage = ({ data }) => {
    heard.push(data);
    if (heard.length > MOST_SHOWN) heard.shift();
    showVoice(heard, ` heard; now ${data.toFixed(2)}`);
  };
  return () => {
    stream.getTracks().forEach((track) => track.stop());
    return context.close();
  };
}

async function startVoice(penstock, module) {
  const network = await bytesOf("models/voice.safetensors");
  const microphone = element("voice-microphone"), file = element("voice-file");
  let stop;
  microphone.onclick = shown("voice", async () => {
    if (stop) await stop();
    stop = stop ? undefined : await listen(module, network);
    microphone.textContent = stop ? "Stop" : "Listen to the microphone";
  });
  file.onchange = shown("voice", async () => {
    // The browser decodes the file and resamples it to the rate of this context.
    const decoder = new OfflineAudioContext(1, 1, SAMPLE_RATE);
    const sound = await decoder.decodeAudioData(await file.files[0].arrayBuffer());
    const detector = new VoiceDetector(penstock, network), found = [];
    const began = performance.now();
    detector.push(sound.getChannelData(0), (probability) => found.push(probability));
    const took = performance.now() - began;
    detector.close();
    showVoice(found, `, computed in ${format(took)} ms`);
  });
  microphone.disabled = file.disabled = false;
}

// A text.

/** Draws a token from logits. Temperature 0: the most likely one. */
function draw(logits, temperature) {
  const largest = Math.max(...logits);
  if (temperature === 0) return logits.indexOf(largest);
  const weights = Array.from(logits, (logit) => Math.exp((logit - largest) / temperature));
  let left = Math.random() * weights.reduce((sum, weight) => sum + weight);
  const drawn = weights.findIndex((weight) => (left -= weight) < 0);
  return drawn < 0 ? logits.indexOf(largest) : drawn;
}

async function startText(penstock) {
  const model = penstock.openModel(await bytesOf("models/text.safetensors"));
  const session = model.openSession(), logits = new Float32Array(model.info.outputs), write = element("text-write");
  write.onclick = shown("text", async () => {
    const written = [...new TextEncoder().encode(element("text-prompt").value || " ")];
    const temperature = Number(element("text-temperature").value);
    const began = performance.now();
    session.reset();
    for (const byte of written) session.stepToken(byte, logits);
    for (let i = 0; i < 600; ++i) {
      written.push(draw(logits, temperature));
      session.stepToken(written.at(-1), logits);
    }
    const took = performance.now() - began;
    element("text-written").textContent = new TextDecoder().decode(new Uint8Array(written));
    const parameters = model.info.parameters.toLocaleString("en");
    say("text", `${written.length} bytes in ${format(took)} ms, ${parameters} parameters`);
  });
  write.disabled = false;
}

// A forecast.

/** The rows of a CSV file as objects of numbers by column. Values that are no numbers become NaN. */
function readTable(text) {
  const [names, ...lines] = text.trim().split(/\r?\n/).map((line) => line.split(","));
  return lines.map((cells) => Object.fromEntries(names.map((name, i) => [name.trim(), Number(cells[i])])));
}

function forecast(model, rows) {
  const { inputs, targets } = model;
  const derived = inputs.find(({ isValue }) => !isValue);
  if (derived) throw new Error(`the model reads dates of column ${derived.name}, which this page does not compute`);
  const missing = [...inputs, ...targets].find(({ name }) => !rows.some((row) => name in row));
  if (missing) throw new Error(`the table has no column ${missing.name}, or no rows`);
  const session = model.openSession();
  let outputs;
  try {
    for (const row of rows) {
      outputs = session.step(inputs.map((column) => normalise(column, row[column.name])), outputs);
    }
  } finally {
    session.close();
  }
  const ofTarget = (i) => Array.from(outputs).filter((_, k) => k % targets.length === i);
  return targets.map((column, i) => ofTarget(i).map((value) => denormalise(column, value)));
}

async function startForecast(penstock) {
  const model = penstock.openModel(await bytesOf("models/forecast.safetensors"));
  const file = element("forecast-file"), target = element("forecast-target");
  target.replaceChildren(...model.targets.map(({ name }) => new Option(name)));
  let rows = readTable(new TextDecoder().decode(await bytesOf("models/forecast.csv")));
  const show = shown("forecast", () => {
    const began = performance.now();
    const ahead = forecast(model, rows)[target.selectedIndex];
    const took = format(performance.now() - began);
    const past = rows.slice(-120).map((row) => row[target.value]);
    plot(element("forecast-plot"), [{ values: past, colour: "--line" },
      { values: [past.at(-1), ...ahead], first: past.length - 1, colour: "--ahead" }]);
    const values = ahead.map(format).join(", ");
    say("forecast", `${target.value}: ${values} after ${rows.length} rows, computed in ${took} ms`);
  });
  target.onchange = show;
  file.onchange = shown("forecast", async () => {
    rows = readTable(await file.files[0].text());
    await show();
  });
  file.disabled = false;
  await show();
}

async function start() {
  const module = await WebAssembly.compile(await bytesOf("penstock.wasm"));
  const penstock = await loadPenstock(module);
  element("about").textContent = `Penstock ${penstock.version}: three models, each in this browser alone.`;
  await Promise.all([
    shown("voice", () => startVoice(penstock, module))(),
    shown("text", () => startText(penstock))(),
    shown("forecast", () => startForecast(penstock))(),
  ]);
}

try {
  await start();
  document.body.dataset.state = "ready";
} catch (error) {
  element("about").textContent = error.message;
  element("about").classList.add("error");
}
