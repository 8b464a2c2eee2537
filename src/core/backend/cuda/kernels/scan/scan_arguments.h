// The parameters of the scan kernels, laid out alike by the host's compiler and by NVRTC. Freestanding, without include
// guard: each side includes it once, in a namespace of its own.

/// A tensor [B, T, C] with its channels side by side. Strides in bytes.
struct ScanTensor {
  char* data;
  long long row_stride;
  long long step_stride;
};

/// Header of the workspace, in front of the words that blocks pass on. Zero before its first use; every launch leaves
/// it ready for the next one.
struct ScanHeader {
  unsigned epoch;     // launches so far: words of earlier ones count as empty
  unsigned finished;  // chains (rows x tiles of channels) whose last chunk is done
  unsigned tickets;   // chunks taken, beyond the first of each block
  unsigned unused[61];
};

struct ScanArguments {
  ScanTensor in[5];  // as the kernel's own text says
  ScanTensor out[3];
  const float* state_in;        // [B, C] or null for zeros
  float* state_out;             // [B, C] or null
  const float* earlier;         // corrections: the state_in of the pass that wrote `out`, or null for zeros
  const char* learnt;           // [K, C] in the storage, of cells with learnt vectors
  float* dlearnt;               // backward passes: [B, step_groups, K, C], or null
  int step_groups;              // of a row, kSteps each
  const float* entry;           // backward passes: [B, C] state that entered the first step, or null for zeros
  const long long* lengths;     // [B] or null: all rows have T steps
  const long long* cu_seqlens;  // [B + 1] or null: row b is the steps cu_seqlens[b] .. cu_seqlens[b + 1] of row 0
  const unsigned char* reset;   // [B, T] or null
  long long reset_row_stride, reset_step_stride;
  const float* restarts;  // states with which rows start again at resets: at row * restart_row + step * restart_step
  long long restart_row, restart_step;
  float* drestarts;  // gradients of restarts: zeros before, one thread writes each; null: not wanted
  long long drestart_group, drestart_row, drestart_step;  // drestart_group: from kSteps steps of a row to the next
  ScanHeader* header;                                     // then the states, then the gains of all chunks
  long long steps;                                        // T; packed rows: the steps of all rows together
  int channels;                                           // C
  int channel_tiles;
  int chains;      // B * channel_tiles
  unsigned tiles;  // chains * chunks
  int descending;  // the recurrence starts at the last step
};
