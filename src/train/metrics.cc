#include "train/metrics.h"

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/check.h"

namespace penstock::training {

namespace {

// Keeps the order in which fields are added, which is the order people read them in.
using Json = nlohmann::ordered_json;

Json progress_fields(const char* kind, const Progress& progress, Loss loss) {
  Json record = {{"kind", kind},
                 {"step", progress.step},
                 {"seconds", progress.seconds},
                 {"fraction", progress.fraction},
                 {"epoch", progress.epoch},
                 {"loss", progress.loss}};
  if (loss == Loss::cross_entropy) {
    record["bits_per_step"] = progress.loss / std::numbers::ln2;
    record["accuracy"] = progress.accuracy;
  }
  record.update({{"learning_rate", progress.learning_rate},
                 {"gradient_norm", progress.gradient_norm},
                 {"clipped_norm", progress.clipped_norm},
                 {"steps_per_second", progress.steps_per_second},
                 {"saturated", progress.saturated},
                 {"first_gradient_ratio", progress.first_gradient_ratio},
                 {"skipped", progress.skipped}});
  if (!progress.warning.empty()) record["warning"] = progress.warning;
  return record;
}

Json evaluation_fields(const Evaluation& evaluation, Loss loss) {
  Json record = {{"loss", evaluation.loss}};
  if (loss == Loss::cross_entropy) {
    record["bits_per_step"] = evaluation.bits_per_step;
    record["accuracy"] = evaluation.accuracy;
  }
  record["scored"] = evaluation.scored;
  return record;
}

}  // namespace

MetricsLog::MetricsLog(const std::string& path, bool append) : path_(path) {
  if (path.empty()) return;
  file_.reset(std::fopen(path.c_str(), append ? "a" : "w"));
  if (!file_) fail(ErrorCode::io_failure, "{}: cannot write metrics: {}", path, std::strerror(errno));
}

void MetricsLog::write(const std::string& line) {
  if (std::fputs((line + "\n").c_str(), file_.get()) < 0 || std::fflush(file_.get()) != 0) {
    fail(ErrorCode::io_failure, "{}: cannot write metrics: {}", path_, std::strerror(errno));
  }
}

void MetricsLog::train(const Progress& progress, Loss loss) {
  if (file_) write(progress_fields("train", progress, loss).dump());
}

void MetricsLog::validation(const Progress& progress, Loss loss, const Evaluation& evaluation) {
  if (!file_) return;
  Json record = {{"kind", "validation"}, {"step", progress.step}, {"seconds", progress.seconds}};
  record.update(evaluation_fields(evaluation, loss));
  write(record.dump());
}

void MetricsLog::final(const TrainResult& result, Loss loss) {
  if (!file_) return;
  Json record = progress_fields("final", result.last, loss);
  record["interrupted"] = result.interrupted;
  if (result.validation) record["validation"] = evaluation_fields(*result.validation, loss);
  write(record.dump());
}

void MetricsLog::resume(Index step) {
  if (file_) write(Json{{"kind", "resume"}, {"step", step}}.dump());
}

}  // namespace penstock::training
