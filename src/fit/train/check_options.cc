#include "train/check_options.h"

#include <cmath>

#include "base/names.h"
#include "base/threads.h"

namespace penstock::training {

namespace {

void check_positive(const char* name, double value) {
  require(std::isfinite(value) && value > 0.0, "{} must be positive, not {}", name, value);
}

void check_not_negative(const char* name, auto value) {
  require(std::isfinite(value) && value >= 0, "{} must not be negative, not {}", name, value);
}

void check_at_least_one(const char* name, Index value) {
  require(value >= 1, "{} must be at least 1, not {}", name, value);
}

void check_fraction(const char* name, double value) {
  require(value >= 0.0 && value <= 1.0, "{} must be 0 to 1, not {}", name, value);
}

void check_below_one(const char* name, double value) {
  require(value >= 0.0 && value < 1.0, "{} must be in [0, 1), not {}", name, value);
}

std::string_view name(Loss loss) {
  constexpr Names<4> names = {"auto", "cross_entropy", "mse", "mae"};
  return name_of(names, loss);
}

}  // namespace

void check_batches(const TrainOptions& options) {
  check_at_least_one("batch", options.batch);
  check_at_least_one("length", options.length);
  check_not_negative("validation_batches", options.validation_batches);
}

void check_options(const TrainOptions& options, const Dataset& data) {
  check_not_negative("max_steps", options.max_steps);
  check_not_negative("max_seconds", options.max_seconds);
  check_not_negative("max_epochs", options.max_epochs);
  if (data.training_steps() <= 0) {
    require(options.max_epochs == 0.0, "max_epochs means nothing for data that are generated without end");
    require(options.max_steps > 0 || options.max_seconds > 0.0,
            "max_steps or max_seconds must be given for data that are generated without end");
  }
  check_batches(options);
  check_positive("learning_rate", options.learning_rate);
  check_not_negative("weight_decay", options.weight_decay);
  require(options.learning_rate * options.weight_decay < 1.0,
          "learning_rate times weight_decay must be below 1, not {}", options.learning_rate * options.weight_decay);
  check_below_one("beta1", options.beta1);
  check_below_one("beta2", options.beta2);
  check_positive("epsilon", options.epsilon);
  check_below_one("momentum", options.momentum);
  check_fraction("warmup", options.warmup);
  check_fraction("final_rate", options.final_rate);
  check_not_negative("clip", options.clip);
  check_at_least_one("give_up_after", options.give_up_after);
  check_not_negative("rollbacks", options.rollbacks);
  check_not_negative("validate_every", options.validate_every);
  check_not_negative("validate_steps", options.validate_steps);
  check_not_negative("patience", options.patience);
  require(options.patience == 0 || options.validate_steps > 0,
          "patience counts validations by steps: validate_steps must be given too");
  check_not_negative("log_every", options.log_every);
  check_not_negative("checkpoint_every", options.checkpoint_every);
  check_enum("optimizer", options.optimizer, Optimizer::sgd);
  check_enum("execution.algorithm", options.execution.algorithm, Algorithm::scan);
  check_enum("execution.precision", options.execution.precision, Precision::f16);
  resolve_threads(options.execution.threads);
  resolve_loss(options.loss, data.description().task);
}

Loss resolve_loss(Loss loss, Task task) {
  check_enum("loss", loss, Loss::mae);
  const bool forecast = task == Task::forecast;
  if (loss == Loss::automatic) return forecast ? Loss::mse : Loss::cross_entropy;
  require((loss == Loss::cross_entropy) != forecast, "loss {} does not fit a task with {}", name(loss),
          forecast ? "numeric targets (mse, mae)" : "classes (cross_entropy)");
  return loss;
}

nlohmann::json identity(const TrainOptions& options, Task task) {
  nlohmann::json result = {{"batch", options.batch},
                           {"length", options.length},
                           {"carry_state", options.carry_state},
                           {"loss", name(resolve_loss(options.loss, task))},
                           {"learning_rate", options.learning_rate},
                           {"weight_decay", options.weight_decay},
                           {"warmup", options.warmup},
                           {"final_rate", options.final_rate},
                           {"clip", options.clip},
                           {"seed", options.seed}};
  if (options.patience > 0) {  // which changes the weights; without it a run is what it was before there was any
    result["patience"] = options.patience;
    result["validate_steps"] = options.validate_steps;
  }
  // Only where it differs from the default, because older checkpoints do not have it.
  if (options.rollbacks != TrainOptions().rollbacks) result["rollbacks"] = options.rollbacks;
  if (options.optimizer == Optimizer::adamw) {
    result.update(
        {{"optimizer", "adamw"}, {"beta1", options.beta1}, {"beta2", options.beta2}, {"epsilon", options.epsilon}});
  } else {
    result.update({{"optimizer", "sgd"}, {"momentum", options.momentum}});
  }
  return result;
}

}  // namespace penstock::training
