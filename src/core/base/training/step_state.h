// State of a training step in the GPU's memory: kernels write it, and the host reads it some steps later. Freestanding,
// without include guard, like the structs of arguments.

/// Values that were not finite; the lowest bit set is the cause.
enum StepBroken : unsigned { kBrokenOutput = 1, kBrokenLoss = 2, kBrokenGradient = 4 };

/// Sums of a loss over a batch. The mean is sum / weight.
struct LossSums {
  double sum;            // over the scored positions
  double weight;         // cross-entropy: scored positions; mse, mae: sum of the weights
  long long scored;      // positions with a target
  long long correct;     // cross-entropy: those whose likeliest class is the label
  float gradient_scale;  // what every gradient is multiplied with: loss scale / weight
  unsigned broken;       // kBrokenOutput: something that the loss read was not finite
};

/// Settings of a whole run.
struct StepRules {
  double learning_rate;
  double warmup;       // fraction of the run with rising rate
  double final_rate;   // the cosine ends at this fraction of learning_rate
  long long schedule;  // ScheduleKind, which begin_step is prepared for
  double max_steps;    // 0: no limit in steps
  double max_scored;   // 0: no limit in scored positions
  double clip;         // greatest gradient norm; 0: never clip
  double weight_decay;
  double beta1, beta2;      // of a rule that corrects its moments, else 0, 0
  double average;           // weight of the past in the average of the weights; 0: there is none
  unsigned long long seed;  // of dropout
  double growth, backoff;   // factors of the loss scale
  double least_scale, greatest_scale;
  long long growth_steps;  // good steps in a row after which the loss scale grows; 0: it never changes
};

struct StepState {
  // State of the batch, cleared by BeginStep.
  LossSums loss;
  double gradient_squares;          // sum of the squares of all gradients, the loss scale still in them
  double first_squares;             // of the first of two ranges of them alone (ops/training/training.h)
  double last_squares;              // and of the last one
  unsigned broken;                  // StepBroken
  int apply;                        // the optimiser may update the weights, once DecideStep says so
  unsigned long long dropout_seed;  // of this step
  double learning_rate;

  // Decided once the gradients are known.
  int keep;               // nothing was broken: the carried state may move on
  float gradient_factor;  // what each gradient is multiplied with: clipping / loss scale
  float rate;             // AdamW: learning rate / first bias correction; SGD: learning rate
  float root_correction;  // 1 / sqrt(second bias correction)
  float decay_factor;     // of a weight that decays: 1 - learning rate * weight decay
  float average_rest;     // 1 - weight of the past in the average of the weights
  double gradient_norm, clipped_norm;

  // State of the run so far, initialised by the host and kept in checkpoints.
  long long step;     // batches, skipped ones included
  long long updates;  // of the optimiser
  long long scored;   // positions, skipped batches included
  long long skipped;  // batches with something broken
  long long skipped_in_a_row;
  long long rescaled;      // batches that only lowered the loss scale, which are not skipped ones
  long long last_skipped;  // the step that was skipped last; 0: none
  unsigned last_broken;    // and why
  float loss_scale;        // at least 1; 1: none
  long long good_steps;    // since the loss scale changed
  LossSums total;          // of all batches that were not broken: the host subtracts what it read before
};
