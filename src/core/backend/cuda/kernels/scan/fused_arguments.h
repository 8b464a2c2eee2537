// The parameters of the kernel that runs a layer in one launch, laid out alike by the host's compiler and by NVRTC.
// Freestanding, without include guard: each side includes it once, behind scan_arguments.h.

struct FusedArguments {
  ScanArguments scan;  // in[g]: where gate g goes, if anywhere; out[0]: y
  ScanTensor x;        // [B, T, I]
  const char* weight;  // [G * H, I] without gaps
  const char* bias;    // [G * H] or null
};
