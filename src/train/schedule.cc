#include "train/schedule.h"

#include "ops/training/training.h"
#include "train/optimizer.h"

namespace penstock::training {

double scheduled_rate(const TrainOptions& options, double fraction) {
  return ops::step_rate(training_shape(options, Loss::mse, 0).rules, fraction);
}

}  // namespace penstock::training
