// The parameters of the kernels between matrix products, laid out alike by the host's compiler and by NVRTC.
// Freestanding, without include guard: each side includes it once, in a namespace of its own. Tensors have no gaps; W
// is the width of a row, P the number of positions, B * T.

struct SumPartsArguments {
  const float* partial;  // [parts, size]
  float* first;          // [first_size]
  float* second;         // [size - first_size]
  long long first_size, size;
  int parts;
};

struct EmbeddingForwardArguments {
  const int* tokens;         // [P]
  const long long* lengths;  // [B] or null
  const char* table;         // [vocabulary, W]
  char* y;                   // [P, W]
  long long positions;
  int steps, vocabulary;
};

/// A position [P] and its token, or the number of tokens for what is left out.
struct alignas(8) TokenPosition {
  int token, position;
};

/// One pass of a radix sort of positions by token.
struct SortArguments {
  const int* tokens;          // [P], of the first pass
  const long long* lengths;   // [B] or null, of the first pass
  const TokenPosition* from;  // [P] as the pass before left them
  TokenPosition* to;          // [P]
  unsigned* counts;           // [2^bits, chunks]
  long long positions;
  int steps, vocabulary, chunks, shift;
};

struct EmbeddingBackwardArguments {
  const TokenPosition* sorted;  // [P]
  const char* dy;               // [P, W]
  float* partial;               // [segments, 2, W]: the run that begins before a segment, the one that goes on after it
  float* gradient;              // [vocabulary, W]
  long long positions;
  int vocabulary, segments;
};

/// How values are dropped; the mask is a function of the seed, the site and the index.
struct DropoutArguments {
  const unsigned long long* seed;  // one
  unsigned long long site;
  unsigned threshold;
  float scale;
};

struct RmsNormForwardArguments {
  const char* x;       // [rows, W]
  const char* branch;  // [rows, W]: added to x, or null
  const float* gain;   // [W]
  char* sum;           // [rows, W] = x + dropout(branch)
  char* y;             // [rows, W]
  float* inverse;      // [rows] or null
  long long rows;
  float epsilon;
  DropoutArguments dropout;
};

struct RmsNormBackwardArguments {
  const char* x;         // [rows, W]
  const char* dy;        // [rows, W]
  const float* inverse;  // [rows]
  const float* gain;     // [W]
  const char* d;         // [rows, W]: added to dx, or null
  char* dx;              // [rows, W]
  char* dbranch;         // [rows, W] = dropout's gradient of dx, or null
  float* partial;        // [blocks, W], with sums of the branch's gradient [blocks, 2, W]
  long long rows;
  DropoutArguments dropout;
};

struct ConvolutionArguments {
  const long long* lengths;    // [B] or null
  const unsigned char* reset;  // [P] or null
  const char* x;               // [P, W]
  const char* dy;              // [P, W], backward
  const float* weight;         // [K, W]
  const float* bias;           // [W]
  const float* state_in;       // [B, K - 1, W] or null for zeros
  float* state_out;            // [B, K - 1, W] or null
  char* y;                     // [P, W]; backward: dx, or null
  float* partial;              // [parts, (K + 1) * W], backward
  int rows, steps, chunks, tiles, parts;
};

struct GateArguments {
  const char* gv;  // [rows, 2 W]: gates, then values
  const char* dy;  // [rows, W], backward
  char* to;        // [rows, W]; backward: [rows, 2 W]
  float* partial;  // [blocks, 2 W], backward: sums of the columns of `to` over a block's rows
  long long rows;
};

struct ResidualArguments {
  const char* x;       // [size], or null: only the dropout
  const char* branch;  // [size]
  char* y;             // [size]
  long long size;
  DropoutArguments dropout;
};

struct LossPartial {
  double sum, weight;
  long long scored, correct;
  unsigned broken;
  unsigned unused;
};

struct LossArguments {
  const char* y;            // [P, W] logits or predictions
  const int* labels;        // [P], cross-entropy
  const float* targets;     // [P, W], regression
  const float* weights;     // [P, W], regression
  char* gradient;           // [P, W] or null
  const float* loss_scale;  // one, or null for 1
  LossPartial* partial;     // [blocks]
  LossSums* sums;
  long long rows;
  int blocks;
};

struct SquaresArguments {
  const float* values;  // [bounds[5]]
  double* partial;      // [first_part[5]]
  double* result;       // [3]: of all, of the range from bounds[1] to bounds[2], of that from bounds[3] to bounds[4]
  long long bounds[6];  // of five ranges, one after the other
  int first_part[6];    // of each range
};

struct FiniteArguments {
  const char* values;  // [size]
  unsigned* flags;
  long long size;
  unsigned bit;
};

struct TrainingStepArguments {
  StepState* state;
  const double* time_fraction;  // one, or null
  StepRules rules;
};

struct OptimizerRange {
  long long begin;  // of the flat store
  int count;
  int decay;
};

struct OptimizerArguments {
  const StepState* state;
  const OptimizerRange* ranges;
  const float* gradients;  // [size], as all below
  float* values;
  float* first;   // first moment; SGD: momentum
  float* second;  // AdamW
  char* copy;     // or null
  float beta1, rest1, beta2, rest2, epsilon;
};

struct CopyArguments {
  const char* from;
  char* to;
  const int* condition;                    // nothing is copied where it is 0; or null
  const long long* lengths;                // [B] or null: zeros beyond them
  const int* numbers;                      // [rows] or null: which rows of the numbered array; negative: none
  long long rows, from_stride, to_stride;  // strides in elements
  long long from_batch, to_batch;          // from row of a batch to row of a batch, where that is not steps * stride
  int steps;
};

struct CastArguments {
  const char* from;  // [size]
  char* to;
  const int* condition;  // as above
  long long size;
};

struct SaturationArguments {
  const char* values;          // [rows, width], rows `row_stride` values apart
  unsigned long long* counts;  // [2]: added to
  long long rows, width, row_stride;
};

struct FillArguments {
  char* to;
  long long size;
  float value;
};

struct ChangesColumn {
  int input, target;
  float change_factor;
  float unused;
  double factor, offset;
};

struct ChangesArguments {
  const ChangesColumn* columns;  // [S]
  const float* features;         // [P, I]
  const long long* lengths;      // [B] or null
  const unsigned char* reset;    // [P] or null
  const float* state_in;         // [B, S + 1]
  float* state_out;              // [B, S + 1]
  char* y;                       // [P, I + S]; add_last: [P, horizon, targets]
  int rows, steps, inputs, shared, horizon, targets;
};

struct SampleArguments {
  const char* logits;              // [streams, classes], rows `stride` elements apart
  const unsigned long long* keys;  // [streams]
  unsigned long long* counters;    // [streams]
  int* tokens;                     // [streams]
  int* history;                    // [streams, history_length] or null
  unsigned long long* sort;        // [streams, kSize], where shared memory is too small
  double* sums;                    // [streams, kSize], as well
  long long stride, history_length;
  double temperature, top_p;
  int top_k;
};
