#include "train/metrics_log.h"

#include <numbers>
#include <utility>

#include "base/check.h"
#include "io/model_json.h"
#include "penstock/train/fields.h"

namespace penstock::training {

namespace {

// Keeps the order in which fields are added, which is the order people read them in.
using Json = nlohmann::ordered_json;

/// Adds the fields of a Progress or an Evaluation. Bits and accuracy are those of cross-entropy alone.
void add_fields(Json& record, const auto& values, Loss loss) {
  visit_fields(values, [&](const char* key, const auto& value) {
    const std::string_view name = key;
    const bool of_entropy = name == "bits_per_step" || name == "accuracy";
    if (name == "seconds_left" || (of_entropy && loss != Loss::cross_entropy)) return;
    if constexpr (requires { value.empty(); }) {
      if (value.empty()) return;
    }
    if constexpr (std::is_convertible_v<decltype(value), Message>) {
      record[key] = Message(value).text();
    } else {
      record[key] = value;
    }
  });
}

Json progress_fields(const char* kind, const Progress& progress, Loss loss) {
  Json record = {{"kind", kind}};
  add_fields(record, progress, loss);
  if (loss == Loss::cross_entropy) record["bits_per_step"] = progress.loss / std::numbers::ln2;
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

void MetricsLog::validation(const Progress& progress, Loss loss, const Evaluation& evaluation) {
  Json record = {{"kind", "validation"}, {"step", progress.step}, {"seconds", progress.seconds}};
  add_fields(record, evaluation, loss);
  write(record.dump());
  std::vector<Scalar> values = {{"loss/validation", evaluation.loss}};
  if (loss == Loss::cross_entropy) {
    values.emplace_back("accuracy/validation", evaluation.accuracy);
    values.emplace_back("bits_per_step/validation", evaluation.bits_per_step);
  }
  events_.scalars(progress.step, values);
}

void MetricsLog::final(const TrainResult& result, Loss loss) {
  Json record = progress_fields("final", result.last, loss);
  record["interrupted"] = result.interrupted;
  record["stopped_early"] = result.stopped_early;
  if (!result.gave_up.empty()) record["gave_up"] = result.gave_up.text();
  record["model_step"] = result.model_step;
  if (result.validation) add_fields(record["validation"], *result.validation, loss);
  write(record.dump());
}

void MetricsLog::resume(Index step) {
  write(Json{{"kind", "resume"}, {"step", step}}.dump());
  events_.restart(step);
}

}  // namespace penstock::training
