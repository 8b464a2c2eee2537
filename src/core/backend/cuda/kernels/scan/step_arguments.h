// The parameters of the step kernel, laid out alike by the host's compiler and by NVRTC. Freestanding, without include
// guard: each side includes it once, in a namespace of its own.

struct StepArguments {
  const char* x;       // [B, I], rows x_stride bytes apart
  const char* weight;  // [G * H, I] without gaps
  const char* bias;    // [G * H] or null
  const char* learnt;  // [K * H] of cells with learnt vectors
  float* state;        // [B, H], replaced by the next one
  char* y;             // [B, H], rows y_stride bytes apart
  long long x_stride, y_stride;
  int rows, input, hidden;
};
