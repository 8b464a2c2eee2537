// The page of examples/web in headless Chromium, with a picture of it.
//     PENSTOCK_SITE=FOLDER node --test tests/web/test_page.mjs     FOLDER: what examples/web/build.sh made
// PENSTOCK_SOUND is a WAV file with speech, which the microphone then hears as well. The picture is FOLDER/page.png.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import { after, test } from "node:test";

const site = process.env.PENSTOCK_SITE, sound = process.env.PENSTOCK_SOUND;
const skip = !site && "PENSTOCK_SITE is not set";
const hasVoice = !skip && existsSync(join(site, "models/voice.safetensors"));

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".wasm": "application/wasm" };
const server = createServer((request, response) => {
  const path = normalize(new URL(request.url, "http://localhost").pathname);
  const file = join(site, path.replace(/\/$/, "/index.html"));
  if (!existsSync(file)) return response.writeHead(404).end();
  response.writeHead(200, { "Content-Type": TYPES[extname(file)] ?? "application/octet-stream" }).end(readFileSync(file));
});

/** Chromium behind its pipe: messages of JSON that end with a zero. */
function startChromium(folder) {
  const options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
    `--user-data-dir=${folder}`, "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream",
    "--autoplay-policy=no-user-gesture-required", "--window-size=800,1100",
    ...(sound ? [`--use-file-for-fake-audio-capture=${sound}`] : [])];
  const process = spawn("chromium", options, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
  process.on("error", (error) => { throw new Error(`chromium does not start: ${error.message}`); });
  const waiting = new Map(), events = [];
  let number = 0, rest = "";
  process.stdio[4].on("data", (bytes) => {
    const messages = (rest + bytes).split("\0");
    rest = messages.pop();
    for (const message of messages.map((text) => JSON.parse(text))) {
      if (message.id === undefined) events.push(message);
      waiting.get(message.id)?.(message);
    }
  });
  const send = (method, params = {}, sessionId = undefined) => new Promise((resolve, reject) => {
    waiting.set(++number, ({ result, error }) => {
      if (error) reject(new Error(`${method}: ${error.message}`));
      else resolve(result);
    });
    process.stdio[3].write(`${JSON.stringify({ id: number, method, params, sessionId })}\0`);
  });
  return { process, send, events };
}

if (skip) {
  test("the page", { skip }, () => {});
} else {
  const folder = mkdtempSync(join(tmpdir(), "penstock-page-"));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { process, send, events } = startChromium(folder);
  after(async () => {
    const ended = new Promise((resolve) => process.on("exit", resolve));
    process.kill();
    await ended;
    server.close();
    rmSync(folder, { recursive: true, force: true });
  });
  const { targetId } = await send("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
  const page = (method, params) => send(method, params, sessionId);
  const run = async (expression) => {
    const options = { expression, awaitPromise: true, returnByValue: true };
    const { result, exceptionDetails } = await page("Runtime.evaluate", options);
    assert.equal(exceptionDetails, undefined, exceptionDetails?.exception?.description);
    return result.value;
  };
  const text = (id) => run(`document.getElementById("${id}").textContent`);
  /** Waits until an expression is true in the page. */
  const until = async (expression) => {
    for (let i = 0; i < 600; ++i) {
      if (await run(`Boolean(${expression})`)) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    assert.fail(`still not true: ${expression}; voice: ${await text("voice-answer")}`);
  };
  await page("Runtime.enable");
  await page("Page.enable");
  await page("Page.navigate", { url: `http://127.0.0.1:${server.address().port}/` });

  test("it loads, and forecasts at once", async () => {
    await until(`document.body?.dataset.state === "ready"`);
    assert.match(await text("about"), /^Penstock \d+\.\d+\.\d+: three models/);
    assert.match(await text("forecast-answer"), /^\w+: -?[\d.]{1,6}(, -?[\d.]{1,6})* after \d+ rows, computed in/);
  });

  test("it writes", async () => {
    await run(`document.getElementById("text-write").click()`);
    await until(`document.getElementById("text-answer").textContent`);
    assert.match(await text("text-answer"), /^617 bytes in [\d.]+ ms/);
    assert.ok((await text("text-written")).startsWith("In the beginning "));
  });

  const mute = hasVoice && sound ? false : "no voice model, or no PENSTOCK_SOUND";
  test("it finds speech in a file", { skip: mute }, async () => {
    const { root } = await page("DOM.getDocument");
    const { nodeId } = await page("DOM.querySelector", { nodeId: root.nodeId, selector: "#voice-file" });
    await page("DOM.setFileInputFiles", { nodeId, files: [sound] });
    await until(`/computed in/.test(document.getElementById("voice-answer").textContent)`);
    const [, speech, whole] = (await text("voice-answer")).match(/speech in ([\d.]+) of ([\d.]+) s/).map(Number);
    assert.ok(speech > 0.3 * whole, `${speech} of ${whole} s`);
  });

  test("there is a picture", async () => {
    const { cssContentSize } = await page("Page.getLayoutMetrics");
    const clip = { ...cssContentSize, scale: 0.8 };
    const { data } = await page("Page.captureScreenshot", { format: "png", captureBeyondViewport: true, clip });
    const picture = Buffer.from(data, "base64");
    assert.ok(picture.length > 10000);
    writeFileSync(join(site, "page.png"), picture);
  });

  test("it finds speech by microphone", { skip: mute }, async () => {
    await run(`document.getElementById("voice-microphone").click()`);
    await until(`/speech in [1-9].*heard/.test(document.getElementById("voice-answer").textContent)`);
    await run(`document.getElementById("voice-microphone").click()`);
    await until(`document.getElementById("voice-microphone").textContent.startsWith("Listen")`);
    assert.equal(await run(`document.getElementById("voice-answer").classList.contains("error")`), false);
  });

  test("it forecasts another table, and refuses one without the model's column", async () => {
    const give = (table) => run(`{ const files = new DataTransfer();
      files.items.add(new File([${JSON.stringify(table)}], "other.csv"));
      const input = document.getElementById("forecast-file"); input.files = files.files; input.onchange(); }`);
    const name = await run(`document.getElementById("forecast-target").value`);
    await give("a,b\n1,2\n");
    await until(`document.getElementById("forecast-answer").classList.contains("error")`);
    assert.match(await text("forecast-answer"), new RegExp(`^the table has no column ${name}`));
    await give(`${name}\n26\nmany\n25\n`);
    await until(`/feature 0/.test(document.getElementById("forecast-answer").textContent)`);
    await give(`${name}\r\n${Array.from({ length: 90 }, (_, i) => 26 + 3 * Math.sin(i / 3)).join("\r\n")}\r\n`);
    await until(`/after 90 rows/.test(document.getElementById("forecast-answer").textContent)`);
    assert.equal(await run(`document.getElementById("forecast-answer").classList.contains("error")`), false);
  });

  test("without a voice model the page says how to make it", { skip: hasVoice && "it is there" }, async () => {
    assert.match(await text("voice-answer"), /models\/voice.safetensors is not there/);
  });

  test("nothing failed in silence", () => {
    const failures = events.filter(({ method }) => method === "Runtime.exceptionThrown");
    assert.deepEqual(failures.map(({ params }) => params.exceptionDetails.text), []);
  });
}
