// The parameters of the kernels of dense cells, laid out alike by the host's compiler and by NVRTC. Freestanding,
// without include guard: each side includes it once, in a namespace of its own.

/// A tensor [B, T, C] with its channels side by side. Strides in bytes. Packed rows lie along T of row 0.
struct DenseTensor {
  char* data;
  long long row_stride;
  long long step_stride;
};

/// Which steps of which rows exist, and in which order rows are taken.
struct DenseRows {
  const long long* lengths;     // [B] or null: all rows have T steps
  const long long* cu_seqlens;  // [B + 1] or null: row b is the steps cu_seqlens[b] .. cu_seqlens[b + 1] of row 0
  const int* order;             // [B] rows by falling length, or null: in their own order
  const unsigned char* reset;   // [B, T] or null
  long long reset_row_stride, reset_step_stride;
  long long steps;  // T; packed rows: the steps of all rows together
  int rows;         // B
};

struct DenseForwardArguments {
  DenseRows rows;
  DenseTensor wx;         // [B, T, G, H]
  DenseTensor y;          // [B, T, H]
  const char* recurrent;  // [heads, G, D, D]
  const float* bias_ih;   // [G, H] or null
  const float* bias_hh;   // [G, H] or null
  const float* state_in;  // [S, B, H] or null for zeros
  float* state_out;       // [S, B, H] or null
  DenseTensor sums;       // [B, T, G, H] for the backward pass, or null
  DenseTensor states;     // float [B, T, S - 1, H], which entered a step, for the backward pass, or null
  int hidden, heads;      // H and its parts
  int slices;             // of the rows
};

struct DenseBackwardArguments {
  DenseRows rows;
  DenseTensor wx;            // as of the forward pass; read by cells whose gradients are split
  DenseTensor y;             // as of the forward pass
  DenseTensor dy;            // [B, T, H] or null for zeros
  DenseTensor sums, states;  // as the forward pass left them
  DenseTensor dwx;           // [B, T, G, H]
  DenseTensor drh;           // [B, T, G, H], of cells whose gradients are split; else null
  DenseTensor operand;       // [B, T, H] what the recurrent matrix is multiplied by in a second phase, or null
  const char* recurrent;     // [heads, G, D, D]
  const float* bias_ih;      // [G, H] or null
  const float* state_in;     // [S, B, H] or null for zeros
  const float* dstate_out;   // [S, B, H] or null for zeros
  float* dstate_in;          // [S, B, H] or null
  int hidden, heads;
  int slices;
};

struct EnteringArguments {
  DenseRows rows;
  DenseTensor y;          // [B, T, H]
  DenseTensor entering;   // [B, T, H]
  const float* state_in;  // [B, H] or null for zeros
  int hidden;
};

struct SortRowsArguments {
  const long long* lengths;     // [B], or null
  const long long* cu_seqlens;  // [B + 1], or null
  int* order;                   // [B]
  int rows;
};

/// Gradients of some gates' part of a recurrent matrix of several heads.
struct HeadGradientArguments {
  const char* gates;      // [P, G, H] from the first of the gates on: gradients of the recurrent products
  const char* operand;    // [P, H]: what they were products of
  float* partial;         // [chunks, heads, G, D, D] from the first of the gates on
  long long positions;    // P
  long long chunk;        // positions of a block
  long long gate_stride;  // from position to position, in bytes
  long long operand_stride;
  int hidden, heads;
  int gates_of_all;  // G
};
