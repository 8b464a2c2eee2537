// The parameters of the kernels of dense cells, laid out alike by the host's compiler and by NVRTC. Freestanding,
// without include guard: each side includes it once, in a namespace of its own.

/// A tensor [B, T, C] with its channels side by side. Strides in bytes. Packed rows lie along T of row 0.
struct DenseTensor {
  char* data;
  long long row_stride;
  long long step_stride;
};

/// Rows and steps of a batch, and the order in which rows are taken.
struct DenseRows {
  const long long* lengths;     // [B] or null: all rows have T steps
  const long long* cu_seqlens;  // [B + 1] or null: row b is the steps cu_seqlens[b] .. cu_seqlens[b + 1] of row 0
  const int* order;             // [B] rows by decreasing length, or null: in their own order
  const unsigned char* reset;   // [B, T] or null
  long long reset_row_stride, reset_step_stride;
  const float* restarts;  // states with which rows start again at resets; null: zeros
  // Values from state to state of them, from row to row, and from step to step; strides of 0 share states.
  long long restart_state, restart_row, restart_step;
  long long steps;  // T; packed rows: the steps of all rows together
  int rows;         // B
  // Range of steps, begin .. begin + most, that this call covers in packed rows; the kernel counts them from 0.
  int begin, most;
};

struct DenseForwardArguments {
  DenseRows rows;
  DenseTensor wx;           // [B, T, G, H]
  DenseTensor y;            // [B, T, H]
  const char* recurrent;    // [heads, G, D, D]
  const float* bias_ih;     // [G, H] or null
  const float* bias_hh;     // [G, H] or null
  const float* learnt;      // [K, H] of cells with learnt vectors
  const float* state_in;    // [S, B, H] or null for zeros
  float* state_out;         // [S, B, H] or null
  DenseTensor sums;         // [B, T, G, H] for the backward pass, or null
  DenseTensor states;       // float [B, T, S - 1, H], which entered a step, for the backward pass, or null
  DenseTensor every_state;  // float [B, T, S - 1, H], states but h after each step, or null
  int hidden, heads;        // H and its parts
  int slices;               // of the rows
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
  const float* learnt;       // [K, H] of cells with learnt vectors
  float* dlearnt;            // [B, K, H] to which each row's gradients of them are added, or null
  const float* state_in;     // [S, B, H] or null for zeros
  const float* dstate_out;   // [S, B, H] or null for zeros
  float* dstate_in;          // [S, B, H] or null
  DenseTensor dstates;       // float [B, T, S - 1, H]: gradients of the states but h after each step, or null for zeros
  float* drestarts;          // to which gradients of rows.restarts are added, or null
  long long drestart_state, drestart_row;  // as restart_state and restart_row, but no rows share a place
  float clip;  // limit of the gradient that a step passes to the h before it, where there is one
  int hidden, heads;
  int slices;
};

/// Passes whose teams of clusters share a recurrent matrix. Team i of the launch takes head and slice `first + i`.
/// `exchange`: for each of some buffers in turns and each team, 16-byte pieces of what is exchanged; all bits set where
/// nothing has been sent.
struct DenseChipForwardArguments {
  DenseForwardArguments call;
  char* exchange;
  int first, teams;
};

struct DenseChipBackwardArguments {
  DenseBackwardArguments call;
  char* exchange;
  int first, teams;
};

/// Launches of the kernels below that are of no step.
constexpr int kBeforeFirstStep = -1;

/// One launch of the kernels that apply the cell between the matrix products of a step.
struct DenseStepForwardArguments {
  DenseForwardArguments call;
  const float* products;  // [B, heads, G, D] R h; of the gates of a second phase R times its operand
  const float* before;    // [S, B, H] states before the step, or null for zeros
  float* after;           // [S, B, H] states after it; may be `before`
  char* operand;          // [B, H] in the storage: what the next product multiplies, or null if there is none
  int step;
  int phase;  // 1: of a cell with two phases, the second one
};

struct DenseStepBackwardArguments {
  DenseBackwardArguments call;
  const float* through;   // [B, H] what flows through R into the h that left the step
  const float* doperand;  // [B, H] of a cell with two phases: what flows into the operand of the second
  float* carry;           // [S, B, H] gradients of the states but for what flows through R
  char* gates;            // [B, heads, G, D] in the storage: gradients of R h, what the next product multiplies
  int step;
  int phase;     // 1: of a cell with two phases, what waits for doperand
  int is_first;  // of the backward pass: nothing has been carried yet
};

/// Passes whose recurrent matrices are diagonal. A *chain* is a unit of a row, number row * H + unit, and runs by
/// itself; its steps are cut into pieces that run side by side where `pieces` is more than one.
struct DenseDiagonalForwardArguments {
  DenseForwardArguments call;
  float* entering;  // [pieces, S, B, H] the states with which each piece runs; this and the next three for pieces
  float* leaving;   // [pieces, S, B, H] the states to which that leads
  float* jacobian;  // [pieces, S, S, B, H] how they change with those that enter: of state i with state j
  int* iterations;  // [B, H] after how many iterations over its pieces a chain was found to join; 0: not yet
  int pieces, piece_steps;
  int iteration;  // from 1 on; the first one guesses what enters, and writes no outputs
};

struct DenseDiagonalBackwardArguments {
  DenseBackwardArguments call;
  float* carry;     // [pieces, S, B, H] the gradients that leave a piece if none enter, and then those that enter it
  float* gain;      // [pieces, S, S, B, H] how those that leave change with those that enter
  float* dweight;   // [pieces, B, H, G] the pieces' shares of the gradients of R, or null
  float* dbias_ih;  // [pieces, B, G, H] and of the biases, each or null
  float* dbias_hh;
  float* dlearnt;  // [pieces, B, K, H] and of the learnt vectors, or null
  int pieces, piece_steps;
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
