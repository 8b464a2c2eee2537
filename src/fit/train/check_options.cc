#include "train/check_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "base/threads.h"
#include "ops/training/sound_loss.h"
#include "train/optimizer_state.h"

namespace penstock {

bool SettingRange::contains(double value) const {
  const bool low = above_least ? value > least : value >= least;
  return std::isfinite(value) && low && (below_most ? value < most : value <= most);
}

std::string SettingRange::text() const {
  const bool has_most = std::isfinite(most);
  if (!std::isfinite(least)) return "a finite number";
  if (has_most && !above_least && !below_most) return fmt::format("{:g} to {:g}", least, most);
  std::string text = fmt::format("{} {:g}", above_least ? "greater than" : "at least", least);
  if (has_most) text += fmt::format(" and {} {:g}", below_most ? "below" : "at most", most);
  return text;
}

namespace training {

namespace {

template <class T>
void check(const Setting<T>& setting, const TrainOptions& options) {
  if constexpr (std::is_arithmetic_v<T>) {
    const T value = options.*setting.member;
    require_argument(setting.range.contains(static_cast<double>(value)), setting.name, value, "{}",
                     setting.range.text());
  } else if constexpr (std::is_enum_v<T>) {
    check_enum(setting.name, options.*setting.member, static_cast<T>(names_of(T()).size() - 1));
  }
}

/// Returns whether a run with these options resumes only with the same value of a setting.
template <class T>
bool is_fixed(const Setting<T>& setting, const TrainOptions& options) {
  switch (setting.identity) {
    case SettingIdentity::free:
      return false;
    case SettingIdentity::fixed:
      return true;
    case SettingIdentity::if_changed:  // because older checkpoints do not have it
      return options.*setting.member != TrainOptions().*setting.member;
    case SettingIdentity::with_validations:
      return options.patience > 0 || options.schedule == Schedule::plateau;
    case SettingIdentity::with_optimizer:
      return std::ranges::any_of(choice_of(options.optimizer).settings, [&](const char* name) {
        return name != nullptr && setting.name == std::string(name);
      });
  }
  return false;
}

}  // namespace

void check_batches(const TrainOptions& options) {
  for_each_setting([&](const auto& setting) {
    const std::string_view name = setting.name;
    if (name == "batch" || name == "length" || name == "validation_batches") check(setting, options);
  });
}

void check_options(const TrainOptions& options, const Dataset& data) {
  for_each_setting([&](const auto& setting) { check(setting, options); });
  if (data.training_steps() <= 0) {
    require_about(options.max_epochs == 0.0, "max_epochs", " needs data that end, and these are generated without end");
    require_about(options.max_steps > 0 || options.max_seconds > 0.0, "max_steps",
                  " or max_seconds must be given for data that are generated without end");
  }
  require_about(options.learning_rate * options.weight_decay < 1.0, "learning_rate",
                " times weight_decay must be below 1, not {}", options.learning_rate * options.weight_decay);
  require_about(options.patience == 0 || options.validate_steps > 0, "patience",
                " counts validations by steps: validate_steps must be given too");
  const bool validates = data.training_steps() <= 0 || data.held_out_steps() > 0;
  require_about(options.patience == 0 || validates, "patience",
                " counts validations on held-out data: hold some out, or set it to 0");
  const bool plateau = options.schedule == Schedule::plateau;
  require_about(!plateau || validates, "schedule",
                " plateau goes by the loss of held-out data: hold some out, or choose another schedule");
  require_about(!plateau || options.validate_steps > 0, "schedule",
                " plateau goes by validations by steps: validate_steps must be above 0");
  check_enum("execution.algorithm", options.execution.algorithm, Algorithm::scan);
  check_enum("execution.precision", options.execution.precision, Precision::tf32);
  resolve_threads(options.execution.threads);
  check_loss(options, data.description());
}

void check_loss(const TrainOptions& options, const DataDescription& data) {
  const LossKind kind = kind_of(resolve_loss(options.loss, data.task));
  if (!is_sound_loss(kind)) return;
  const char* const name = choice_of(options.loss).name;
  require_about(data.sample_rate > 0, "loss", " {} is for sound (mse and mae are for series)", name);
  require_about(sound_parts(kind).stft == 0.0 || options.length >= ops::longest_frame, "length",
                " must be at least {} for the loss {}, whose longest frame that is, not {}", ops::longest_frame, name,
                options.length);
  if (options.execution.device.is_cuda()) {
    fail_with(ErrorCode::unsupported, {"choose ", the_option("device", "cpu"), " or ", the_option("loss", "mse")},
              "the loss {} is computed on CPUs only", name);
  }
}

Loss resolve_loss(Loss loss, Task task) {
  check_enum("loss", loss, static_cast<Loss>(loss_names.size() - 1));
  const bool forecast = task == Task::forecast;
  if (loss == Loss::automatic) return forecast ? Loss::mse : Loss::cross_entropy;
  const std::vector<std::string> regression(loss_names.begin() + static_cast<int>(Loss::mse), loss_names.end());
  require_about(
      (loss == Loss::cross_entropy) != forecast, "loss", " {} does not fit a task with {}", choice_of(loss).name,
      forecast ? fmt::format("numeric targets ({})", fmt::join(regression, ", ")) : "classes (cross_entropy)");
  return loss;
}

nlohmann::json identity(TrainOptions options, Task task) {
  options.loss = resolve_loss(options.loss, task);
  nlohmann::json result;
  for_each_setting([&](const auto& setting) {
    if (is_fixed(setting, options)) result[setting.name] = value_of(setting, options);
  });
  return result;
}

}  // namespace training
}  // namespace penstock
