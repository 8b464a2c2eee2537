// Runs the detector in the audio thread, which waits for nothing: one message for each chunk of the microphone.
import { Penstock } from "./penstock.js";
import { VoiceDetector } from "./voice.js";

class VoiceProcessor extends AudioWorkletProcessor {
  constructor({ processorOptions: { module, network } }) {
    super();
    this.detector = new VoiceDetector(new Penstock(module), network);
    this.found = (probability) => this.port.postMessage(probability);
  }

  process([[channel]]) {
    if (channel) this.detector.push(channel, this.found);
    return true;
  }
}

registerProcessor("voice", VoiceProcessor);
