#include "train/metrics_log.h"

#include <numbers>
#include <utility>

#include "base/check.h"
#include "io/model_json.h"

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
                 {"positions_per_second", progress.positions_per_second},
                 {"saturated", progress.saturated},
                 {"first_gradient_ratio", progress.first_gradient_ratio},
                 {"skipped", progress.skipped},
                 {"rollbacks", progress.rollbacks}});
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

MetricsLog::MetricsLog(const std::string& path, const std::string& tensorboard_path, bool append)
    : events_(tensorboard_path) {
  if (path.empty()) return;
  file_ = LogFile(path, append ? LogFile::Begin::append : LogFile::Begin::replace, "cannot write metrics");
}

void MetricsLog::write(const std::string& line) { file_.write(line + "\n"); }

std::string MetricsLog::take_error() {
  std::string error;
  if (!file_.error().empty() && !std::exchange(said_file_, true)) error = file_.error();
  if (events_.error().empty() || std::exchange(said_events_, true)) return error;
  return error.empty() ? events_.error() : error + "; " + events_.error();
}

void MetricsLog::run(const Model::Impl& model, const nlohmann::json& identity, const std::string& note) {
  Json record = {{"kind", "run"},
                 {"architecture", io::to_json(model.spec)},
                 {"parameters", model.parameters->layout().count()},
                 {"options", identity}};
  if (!note.empty()) record.update(io::parse_object(note, "metrics_note", "the note on the metrics"));
  write(record.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void MetricsLog::train(const Progress& progress, Loss loss) {
  write(progress_fields("train", progress, loss).dump());
  std::vector<Scalar> values = {{"loss/train", progress.loss},
                                {"optimizer/learning_rate", progress.learning_rate},
                                {"optimizer/gradient_norm", progress.gradient_norm},
                                {"optimizer/clipped_norm", progress.clipped_norm},
                                {"optimizer/skipped_steps", static_cast<double>(progress.skipped)},
                                {"throughput/positions_per_second", progress.positions_per_second},
                                {"network/saturated", progress.saturated},
                                {"network/first_gradient_ratio", progress.first_gradient_ratio}};
  if (loss == Loss::cross_entropy) values.emplace_back("accuracy/train", progress.accuracy);
  events_.scalars(progress.step, values);
}

void MetricsLog::scored(Index step, Loss loss, const Evaluation& evaluation) {
  std::vector<Scalar> values = {{"loss/validation", evaluation.loss}};
  if (loss == Loss::cross_entropy) {
    values.emplace_back("accuracy/validation", evaluation.accuracy);
    values.emplace_back("bits_per_step/validation", evaluation.bits_per_step);
  }
  events_.scalars(step, values);
}

void MetricsLog::validation(const Progress& progress, Loss loss, const Evaluation& evaluation) {
  Json record = {{"kind", "validation"}, {"step", progress.step}, {"seconds", progress.seconds}};
  record.update(evaluation_fields(evaluation, loss));
  write(record.dump());
  scored(progress.step, loss, evaluation);
}

void MetricsLog::final(const TrainResult& result, Loss loss) {
  Json record = progress_fields("final", result.last, loss);
  record["interrupted"] = result.interrupted;
  record["stopped_early"] = result.stopped_early;
  if (!result.gave_up.empty()) record["gave_up"] = result.gave_up;
  record["model_step"] = result.model_step;
  if (result.validation) record["validation"] = evaluation_fields(*result.validation, loss);
  write(record.dump());
}

void MetricsLog::resume(Index step) {
  write(Json{{"kind", "resume"}, {"step", step}}.dump());
  events_.restart(step);
}

}  // namespace penstock::training
