// The C runtime of Penstock in JavaScript, for browsers, workers, audio worklets and Node:
//
//     import { loadPenstock } from "./penstock.js";
//     const penstock = await loadPenstock(fetch("penstock.wasm"));
//     const model = penstock.openModel(await (await fetch("model.safetensors")).arrayBuffer());
//     const session = model.openSession();
//     const outputs = session.step([0.5, -1.2]);
//
// Everything that fails throws a PenstockError with the runtime's own text. docs/browser.md is the manual.

const TASKS = ["language", "forecast", "classify", "network"];
// Sizes and places of the structures of penstock.h, in memory with addresses of 32 bits.
const ERROR_BYTES = 512, INFO_BYTES = 64, COLUMN_BYTES = 40, SHAPE_BYTES = 12, TENSOR_BYTES = 20;

/** A call that failed. `status` is the name of its penstock_status, such as "invalid argument". */
export class PenstockError extends Error {
  constructor(status, text) {
    super(text);
    this.name = "PenstockError";
    this.status = status;
  }
}

/**
 * Loads penstock.wasm.
 * @param {Response|Promise<Response>|BufferSource|WebAssembly.Module} source a compiled module is used at once, so that
 *     `new Penstock(module)` serves where nothing may be awaited, such as the constructor of an audio worklet
 * @returns {Promise<Penstock>}
 */
export async function loadPenstock(source) {
  source = await source;
  if (source instanceof WebAssembly.Module) return new Penstock(source);
  if ("arrayBuffer" in source) {
    const { ok, url, status, statusText } = source;
    if (!ok) throw new PenstockError("io failure", `cannot read ${url}: ${status} ${statusText}`);
    source = await source.arrayBuffer();
  }
  return new Penstock(await WebAssembly.compile(source));
}

/** The runtime, with a memory of its own. */
export class Penstock {
  /** @param {WebAssembly.Module} module penstock.wasm */
  constructor(module) {
    this.exports = new WebAssembly.Instance(module, { wasi_snapshot_preview1: this.#system() }).exports;
    this.exports._initialize();
    this.error = this.allocate(ERROR_BYTES);
  }

  /** The version of the runtime, such as "0.1.0". */
  get version() {
    return this.text(this.exports.penstock_version());
  }

  /** Opens a model that `penstock train` or `penstock quantize` wrote. @param {BufferSource} bytes @returns {Model} */
  openModel(bytes) {
    return new Model(this, bytes, (at, size, model) => this.call("int8_model_open_memory", at, size, model));
  }

  /**
   * Opens a network that `penstock import` wrote.
   * @param {BufferSource} bytes
   * @param {Object<string, number[]>} shapes the shape of each input with extents that the caller chooses
   * @returns {Model}
   */
  openNetwork(bytes, shapes = {}) {
    const entries = Object.entries(shapes);
    return new Model(this, bytes, (at, size, model) => this.#withShapes(entries, (table) =>
      this.call("network_open_memory", at, size, table, entries.length, model)));
  }

  // What follows is for the classes below.

  /** Calls penstock_`name`; throws what it reports. */
  call(name, ...values) {
    const status = this.exports[`penstock_${name}`](...values, this.error);
    if (status === 0) return;
    throw new PenstockError(this.text(this.exports.penstock_status_name(status)), this.text(this.error + 4));
  }

  allocate(bytes) {
    const at = this.exports.malloc(Math.max(bytes, 1));
    if (at === 0) throw new PenstockError("out of memory", `no memory for ${bytes} bytes`);
    return at >>> 0;
  }

  free(at) {
    this.exports.free(at);
  }

  // Views are made anew in each call: a memory that grows leaves earlier ones empty.
  view() {
    return new DataView(this.exports.memory.buffer);
  }
  bytes(at, size) {
    return new Uint8Array(this.exports.memory.buffer, at, size);
  }
  floats(at, count) {
    return new Float32Array(this.exports.memory.buffer, at, count);
  }

  /** The string at an address. Worklets have no TextDecoder. */
  text(at) {
    const bytes = this.bytes(at);
    let characters = "";
    for (let i = 0; bytes[i] !== 0; ++i) characters += String.fromCharCode(bytes[i]);
    return decodeURIComponent(escape(characters));
  }

  /** Runs `use(place)` with `size` bytes that are zero, and frees them. */
  withBytes(size, use) {
    const at = this.allocate(size);
    try {
      this.bytes(at, size).fill(0);
      return use(at);
    } finally {
      this.free(at);
    }
  }

  #withShapes(entries, use) {
    const names = entries.map(([name]) => unescape(encodeURIComponent(name)));
    const size = entries.reduce((sum, [, shape], i) => sum + SHAPE_BYTES + 8 * shape.length + names[i].length + 1, 8);
    return this.withBytes(size, (table) => {
      const view = this.view();
      let at = Math.ceil((table + SHAPE_BYTES * entries.length) / 8) * 8;
      entries.forEach(([, shape], i) => {
        view.setUint32(table + SHAPE_BYTES * i + 4, at, true);
        view.setUint32(table + SHAPE_BYTES * i + 8, shape.length, true);
        for (const extent of shape) {
          view.setBigInt64(at, BigInt(extent), true);
          at += 8;
        }
      });
      names.forEach((name, i) => {
        view.setUint32(table + SHAPE_BYTES * i, at, true);
        for (const character of name) view.setUint8(at++, character.charCodeAt(0));
        view.setUint8(at++, 0);
      });
      return use(table);
    });
  }

  /** What the C library asks of a system: an empty environment, and a console for a failed assertion. */
  #system() {
    const badFile = () => 8;
    return {
      environ_sizes_get: (count, size) => {
        this.view().setUint32(count, 0, true);
        this.view().setUint32(size, 0, true);
        return 0;
      },
      environ_get: () => 0,
      fd_close: badFile,
      fd_seek: badFile,
      fd_write: (file, pieces, count, written) => {
        const view = this.view();
        let characters = "", total = 0;
        for (let i = 0; i < count; ++i) {
          const size = view.getUint32(pieces + 8 * i + 4, true);
          const at = view.getUint32(pieces + 8 * i, true);
          for (const byte of this.bytes(at, size)) characters += String.fromCharCode(byte);
          total += size;
        }
        console.error(characters);
        view.setUint32(written, total, true);
        return 0;
      },
      proc_exit: (code) => {
        throw new Error(`penstock.wasm ended with code ${code}`);
      },
    };
  }
}

/** A model in memory. Close it and its sessions: JavaScript does not see what they hold. */
export class Model {
  constructor(penstock, bytes, open) {
    this.penstock = penstock;
    this.users = 1;  // this object and its sessions, which read the file's bytes
    let file = new Uint8Array(0);
    if (ArrayBuffer.isView(bytes)) file = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    else if (bytes != null) file = new Uint8Array(bytes);
    this.file = bytes == null ? 0 : penstock.allocate(file.length);
    penstock.bytes(this.file, file.length).set(file);
    try {
      this.handle = penstock.withBytes(4, (at) => {
        open(this.file, file.length, at);
        return penstock.view().getUint32(at, true);
      });
    } catch (error) {
      penstock.free(this.file);
      throw error;
    }
    this.info = this.#readInfo();
  }

  #readInfo() {
    return this.penstock.withBytes(INFO_BYTES, (at) => {
      this.penstock.view().setUint32(at, INFO_BYTES, true);
      this.penstock.call("model_get_info", this.handle, at);
      const view = this.penstock.view(), number = (place) => view.getUint32(at + place, true);
      return Object.freeze({
        task: TASKS[number(4)], vocabulary: number(8), inputs: number(12), outputs: number(16), targets: number(20),
        horizon: number(24), sampleRate: number(28), parameters: Number(view.getBigUint64(at + 40, true)),
        stateSize: number(48), savedSize: number(52),
      });
    });
  }

  /** Reads one structure after the other until the runtime says that there are no more. */
  #list(call, size, count, read) {
    const found = [];
    this.penstock.withBytes(size, (at) => {
      for (let i = 0; i < count; ++i) {
        this.penstock.call(call, this.handle, i, at);
        found.push(read(this.penstock.view(), at));
      }
    });
    return found;
  }

  #columns(call, count) {
    return this.#list(call, COLUMN_BYTES, count, (view, at) => ({
      name: this.penstock.text(view.getUint32(at, true)),
      mean: view.getFloat64(at + 8, true), scale: view.getFloat64(at + 16, true),
      logarithm: view.getInt32(at + 24, true) === 1, nonNegative: view.getInt32(at + 28, true) === 1,
      isValue: view.getInt32(at + 32, true) === 1, ahead: view.getInt32(at + 36, true),
    }));
  }

  /** The columns that a step reads, in their order. Not for networks and models of tokens. */
  get inputs() {
    return this.#columns("model_get_input", this.info.vocabulary > 0 ? 0 : this.info.inputs);
  }

  /** The columns that a forecast has a value of, for each step ahead. */
  get targets() {
    return this.#columns("model_get_target", this.info.targets);
  }

  /** The names of classes, one for each output. */
  get classes() {
    return this.#list("model_get_class", 4, this.info.outputs, (view, at) => this.penstock.text(view.getUint32(at, true)));
  }

  /** The tensors that a step of a network reads: name, extents, place and number of their elements. */
  get tensors() {
    const { penstock } = this, found = [];
    let read = 0;
    while (read < this.info.inputs) {
      penstock.withBytes(TENSOR_BYTES, (at) => {
        penstock.call("network_get_input", this.handle, found.length, at);
        const view = penstock.view(), number = (place) => view.getUint32(at + place, true);
        const extent = (_, i) => Number(view.getBigInt64(number(4) + 8 * i, true));
        const extents = Array.from({ length: number(8) }, extent);
        found.push({ name: penstock.text(number(0)), extents, first: number(12), size: number(16) });
        read += number(16);
      });
    }
    return found;
  }

  /** Opens a session at the start of a sequence. @returns {Session} */
  openSession() {
    return new Session(this, (at) => this.penstock.call("session_open", this.handle, 0, 0, at));
  }

  /** Closes the model. Its sessions go on. */
  close() {
    this.penstock.call("model_close", this.handle);
    this.release();
  }

  release() {
    if (--this.users === 0) this.penstock.free(this.file);
  }
}

/** A stream with its state. */
export class Session {
  constructor(model, open) {
    this.model = model;
    const { penstock, info } = model;
    this.features = penstock.allocate(4 * (info.inputs + info.outputs));
    this.outputs = this.features + 4 * info.inputs;
    try {
      this.handle = penstock.withBytes(4, (at) => {
        open(at);
        return penstock.view().getUint32(at, true);
      });
    } catch (error) {
      penstock.free(this.features);
      throw error;
    }
    ++model.users;
  }

  /**
   * One step of a model that reads features, or of a network.
   * @param {ArrayLike<number>} features normalised: (value - mean) / scale of the columns of Model.inputs
   * @param {Float32Array} outputs receives the answers; without it, a new array does
   * @returns {Float32Array} outputs
   */
  step(features, outputs = new Float32Array(this.model.info.outputs)) {
    return this.#answer("session_step", this.#row(features), outputs);
  }

  /** One step of a model that reads tokens. @param {number} token @returns {Float32Array} logits of the next token */
  stepToken(token, outputs = new Float32Array(this.model.info.outputs)) {
    return this.#answer("session_step_token", [token], outputs);
  }

  #answer(call, values, outputs) {
    const { penstock } = this.model;
    penstock.call(call, this.handle, ...values, outputs == null ? 0 : this.outputs, outputs?.length ?? 0);
    outputs.set(penstock.floats(this.outputs, outputs.length));
    return outputs;
  }

  /** Returns to the start of a sequence. */
  reset() {
    this.model.penstock.call("session_reset", this.handle);
  }

  /** Runs `steps` steps on a row of features, or on zeros, without outputs. @param {ArrayLike<number>|null} features */
  prewarm(features, steps) {
    this.model.penstock.call("session_prewarm", this.handle, ...this.#row(features), steps);
  }

  /** Copies a row into the runtime's memory and returns its address and length. The runtime refuses a wrong length. */
  #row(features) {
    const { penstock, info } = this.model, count = features?.length ?? 0;
    if (this.features !== 0 && count <= info.inputs) penstock.floats(this.features, count).set(features ?? []);
    return [features == null ? 0 : this.features, count];
  }

  /** @returns {Uint8Array} the state, which restore() of any session of this model reads, here or on other machines */
  save() {
    const { penstock, info } = this.model;
    return penstock.withBytes(info.savedSize, (at) => {
      penstock.call("session_save", this.handle, at, info.savedSize);
      return penstock.bytes(at, info.savedSize).slice();
    });
  }

  /** Sets a state that save() returned. @param {Uint8Array} bytes */
  restore(bytes) {
    const { penstock } = this.model, size = bytes?.length ?? 0;
    penstock.withBytes(size, (at) => {
      if (size > 0) penstock.bytes(at, size).set(bytes);
      penstock.call("session_restore", this.handle, bytes == null ? 0 : at, size);
    });
  }

  /** Opens a session that continues from the same state. @returns {Session} */
  clone() {
    return new Session(this.model, (at) => this.model.penstock.call("session_clone", this.handle, 0, 0, at));
  }

  close() {
    this.model.penstock.call("session_close", this.handle);
    this.model.penstock.free(this.features);
    this.features = 0;
    this.model.release();
  }
}

/** The normalised value of a column's value, as a step reads it. */
export function normalise(column, value) {
  return ((column.logarithm ? Math.log(value) : value) - column.mean) / column.scale;
}

/** The value in the table's units of an output of a forecast. */
export function denormalise(column, output) {
  const value = output * column.scale + column.mean;
  const raw = column.logarithm ? Math.exp(value) : value;
  return column.nonNegative && raw < 0 ? 0 : raw;
}
