#include "answers/step_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "answers/written_values.h"
#include "penstock/error.h"
#include "penstock/interval_tracker.h"
#include "terminal/describe.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

float largest(std::span<const float> logits) { return *std::max_element(logits.begin(), logits.end()); }

/// Sum of exp(logit - top): 256 of them a byte, which is why this is in float.
double exponentials(std::span<const float> logits, float top) {
  double sum = 0.0;
  for (const float logit : logits) sum += static_cast<double>(std::exp(logit - top));
  return sum;
}

}  // namespace

double surprise(std::span<const float> logits, Index token) {
  const float top = largest(logits);
  return (std::log(exponentials(logits, top)) - static_cast<double>(logits[token] - top)) / std::numbers::ln2;
}

Choice likeliest(std::span<const float> logits) {
  const auto top = std::max_element(logits.begin(), logits.end());
  return {top - logits.begin(), 1.0 / exponentials(logits, *top)};
}

std::vector<double> probabilities(std::span<const float> logits) {
  const float top = largest(logits);
  const double sum = exponentials(logits, top);
  std::vector<double> all;
  for (const float logit : logits) all.push_back(static_cast<double>(std::exp(logit - top)) / sum);
  return all;
}

void ByteAnswers::header() {
  if (style_ == Style::table) output_.write("byte      bits  next    p\n");
}

void ByteAnswers::answer(unsigned char byte, std::span<const float> logits) {
  const bool known = !expected_.empty();
  const double bits = known ? surprise(expected_, byte) : 0.0;
  bits_ += bits;
  if (known) ++scored_;
  expected_.assign(logits.begin(), logits.end());
  if (style_ == Style::silent) return;
  const std::string shown = known ? fmt::format("{:.4f}", bits) : "-";
  if (style_ == Style::bits) {
    output_.write(shown + "\n");
    return;
  }
  const Choice next = likeliest(logits);
  if (style_ == Style::table) {
    output_.write(fmt::format("{:<6} {:>7}  {:<6}  {:.3f}\n", readable_byte(byte), shown,
                              readable_byte(static_cast<unsigned char>(next.index)), next.probability));
    return;
  }
  Json json = {{"byte", byte}, {"bits", nullptr}, {"next", next.index}, {"probability", next.probability}};
  if (known) json["bits"] = bits;
  output_.write(json_line(json));
}

void ByteAnswers::expect(std::vector<float> logits) {
  constexpr std::size_t bytes = 256;
  if (logits.size() != bytes) {
    fail(ErrorCode::bad_input, "expected: {} logits, there are {} bytes", logits.size(), bytes);
  }
  expected_ = std::move(logits);
}

RowAnswers::RowAnswers(Output& output, const DataDescription& data, std::vector<std::string> kept, bool json,
                       std::vector<double> quantiles)
    : output_(output),
      data_(&data),
      distribution_(&data.series.errors),
      kept_(std::move(kept)),
      json_(json),
      quantiles_(std::move(quantiles)) {}

void RowAnswers::header() {
  if (json_) return;
  std::vector<std::string> names;
  if (data_->task == Task::forecast) {
    for (Index step = 1; step <= data_->series.horizon; ++step) {
      for (const Column& target : data_->targets) {
        names.push_back(fmt::format("{}+{}", target.name, step));
        for (const double level : quantiles_) names.push_back(fmt::format("{}+{} q{:g}", target.name, step, level));
      }
    }
  } else {
    names = {"label", "probability"};
  }
  write_row(kept_, names);
}

void require_finite(std::span<const float> outputs) {
  if (std::ranges::all_of(outputs, [](float value) { return std::isfinite(value); })) return;
  throw Error(ErrorCode::numerical,
              "an answer of the model is not finite: its training was unstable; train it again with a lower "
              "--learning-rate, or look for outliers in the data");
}

void RowAnswers::answer(std::span<const std::string> kept, std::span<const float> outputs) {
  require_finite(outputs);
  if (json_) {
    write_json(kept, outputs);
  } else {
    write_row(kept, cells(outputs));
  }
}

double RowAnswers::raw(std::span<const float> outputs, Index step, std::size_t target,
                       std::optional<double> level) const {
  const std::size_t output = static_cast<std::size_t>(step) * data_->targets.size() + target;
  return raw_forecast(*data_, *distribution_, outputs, output, level);
}

std::vector<std::string> RowAnswers::cells(std::span<const float> outputs) const {
  std::vector<std::string> texts;
  if (data_->task == Task::forecast) {
    for (Index step = 0; step < data_->series.horizon; ++step) {
      for (std::size_t target = 0; target < data_->targets.size(); ++target) {
        const Column& column = data_->targets[target];
        texts.push_back(number_text(raw(outputs, step, target), column));
        for (const double level : quantiles_) texts.push_back(number_text(raw(outputs, step, target, level), column));
      }
    }
    return texts;
  }
  const Choice choice = likeliest(outputs);
  return {data_->labels.classes[static_cast<std::size_t>(choice.index)], fmt::format("{:.6f}", choice.probability)};
}

void RowAnswers::write_row(std::span<const std::string> front, std::span<const std::string> back) {
  std::vector<std::string> fields(front.begin(), front.end());
  fields.insert(fields.end(), back.begin(), back.end());
  output_.write(csv_row(fields, data_->table.delimiter));
}

void RowAnswers::write_json(std::span<const std::string> kept, std::span<const float> outputs) {
  Json json = Json::object();
  for (std::size_t i = 0; i < kept.size(); ++i) json["columns"][kept_[i]] = kept[i];
  if (data_->task == Task::forecast) {
    for (std::size_t target = 0; target < data_->targets.size(); ++target) {
      Json& values = json["forecast"][data_->targets[target].name];
      for (Index step = 0; step < data_->series.horizon; ++step) values.push_back(raw(outputs, step, target));
      for (const double level : quantiles_) {
        Json& at = json["quantiles"][data_->targets[target].name][fmt::format("{:g}", level)];
        for (Index step = 0; step < data_->series.horizon; ++step) at.push_back(raw(outputs, step, target, level));
      }
    }
  } else {
    const Choice choice = likeliest(outputs);
    json["label"] = data_->labels.classes[static_cast<std::size_t>(choice.index)];
    json["probability"] = choice.probability;
    const auto all = probabilities(outputs);
    for (std::size_t i = 0; i < all.size(); ++i) json["probabilities"][data_->labels.classes[i]] = all[i];
  }
  output_.write(json_line(json));
}

void check_quantiles(const Model& model, const std::string& path, std::span<const double> levels) {
  if (levels.empty()) return;
  require_task(model, path, Task::forecast, "--quantiles");
  model.data().series.errors.check(levels);
  if (!std::ranges::is_sorted(levels)) throw Error(ErrorCode::invalid_argument, "--quantiles must ascend");
}

}  // namespace penstock::cli
