// Voice activity by the network of silero-vad: how likely speech is in each 32 ms of sound at 16 kHz.

export const SAMPLE_RATE = 16000;
export const CHUNK = 512;
export const CONTEXT = 64;  // the last samples of the chunk before, which the network reads again

export class VoiceDetector {
  /** @param {import("./penstock.js").Penstock} penstock @param {BufferSource} bytes what `penstock import` wrote */
  constructor(penstock, bytes) {
    this.model = penstock.openNetwork(bytes, { input: [1, CONTEXT + CHUNK] });
    this.session = this.model.openSession();
    this.samples = new Float32Array(CONTEXT + CHUNK);
    this.answer = new Float32Array(this.model.info.outputs);
    this.filled = CONTEXT;
  }

  /** Takes any number of samples and calls `found(probability)` for each chunk that they complete. */
  push(samples, found) {
    for (let i = 0; i < samples.length; ++i) {
      this.samples[this.filled++] = samples[i];
      if (this.filled < CONTEXT + CHUNK) continue;
      found(this.session.step(this.samples, this.answer)[0]);
      this.samples.copyWithin(0, CHUNK);
      this.filled = CONTEXT;
    }
  }

  close() {
    this.session.close();
    this.model.close();
  }
}
