// The parameters of the kernel whose epilogue is the recurrence, laid out alike by the host's compiler and by NVRTC.
// Freestanding, without include guard: each side includes it once, behind scan_arguments.h and where TensorMap is
// known.

struct EpilogueArguments {
  TensorMap x;         // [B, T, I]
  TensorMap weight;    // [G, H, I]
  TensorMap gates;     // [B, T, G, H], where they are kept
  ScanArguments scan;  // out[0]: y
  const char* bias;    // [G * H] or null
  int input_stages;    // of I
};
