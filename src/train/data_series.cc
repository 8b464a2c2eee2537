#include <algorithm>
#include <utility>

#include "base/check.h"
#include "train/csv_table.h"
#include "train/normalise.h"
#include "train/stream_dataset.h"

namespace penstock {
namespace {

using data::CsvField;
using data::CsvHeader;
using data::CsvTable;

/// The used columns of a file, raw.
struct Series {
  std::vector<Index> lines;                  // of each row, for messages
  std::vector<std::vector<double>> columns;  // by position in the header; empty if not used
  Index rows() const { return static_cast<Index>(lines.size()); }
};

Series read_series(const CsvTable& table, const std::vector<std::size_t>& used) {
  Series series;
  series.columns.resize(table.header().names().size());
  std::vector<bool> wanted(series.columns.size(), false);
  for (const std::size_t column : used) wanted[column] = true;
  auto reader = table.rows();
  std::vector<CsvField> record;
  while (reader.next(record)) {
    table.header().check_width(record);
    series.lines.push_back(record[0].line);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i]) series.columns[i].push_back(table.header().number(record, i));
    }
  }
  return series;
}

/// Mean and scale of the chosen columns over the first `training` rows.
std::vector<Column> fit(const Series& series, const CsvHeader& header, const std::vector<std::size_t>& chosen,
                        Index training) {
  std::vector<Column> columns;
  for (const std::size_t position : chosen) {
    const auto seen = std::span(series.columns[position]).first(static_cast<std::size_t>(training));
    columns.push_back(data::fit_column(header.names()[position], seen, header.source()));
  }
  return columns;
}

/// The chosen columns, normalised, as [rows, columns].
std::vector<float> normalise(const Series& series, const CsvHeader& header, const std::vector<std::size_t>& chosen,
                             const std::vector<Column>& columns) {
  std::vector<float> values(series.lines.size() * chosen.size());
  for (std::size_t c = 0; c < chosen.size(); ++c) {
    const auto& raw = series.columns[chosen[c]];
    for (std::size_t row = 0; row < raw.size(); ++row) {
      values[row * chosen.size() + c] = data::normalise(raw[row], columns[c], header.source(), series.lines[row]);
    }
  }
  return values;
}

/// Step p reads row p and is asked for the rows p + 1 .. p + horizon. As in a text, the last training row is the first
/// input of validation. Training walks through the file in windows that carry their state (see StreamWindows) and
/// not in windows from random places: a deployed forecaster sees one endless stream, and so states far from a
/// start are what it must know.
class SeriesDataset final : public data::StreamDataset {
 public:
  SeriesDataset(const CsvTable& table, const Series& series, const std::vector<std::size_t>& inputs,
                const std::vector<std::size_t>& targets, Index held_out, const SeriesOptions& options)
      : StreamDataset("series", series.rows() - held_out - 1, held_out),
        training_rows_(series.rows() - held_out),
        rows_(series.rows()) {
    description_.task = Task::forecast;
    description_.horizon = options.horizon;
    description_.delimiter = options.delimiter;
    description_.inputs = fit(series, table.header(), inputs, training_rows_);
    description_.targets = fit(series, table.header(), targets, training_rows_);
    if (options.from_last) scale_by_changes(series, inputs, targets);
    inputs_ = normalise(series, table.header(), inputs, description_.inputs);
    targets_ = normalise(series, table.header(), targets, description_.targets);
    for (const auto* values : {&inputs_, &targets_}) {
      const auto bytes = std::as_bytes(std::span(*values));
      fingerprint_ = data::fingerprint({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                       fingerprint_ + static_cast<std::uint64_t>(options.horizon));
    }
    fingerprint_ += static_cast<std::uint64_t>(held_out);
  }

 private:
  void scale_by_changes(const Series& series, const std::vector<std::size_t>& inputs,
                        const std::vector<std::size_t>& targets) {
    for (std::size_t c = 0; c < targets.size(); ++c) {
      if (std::find(inputs.begin(), inputs.end(), targets[c]) == inputs.end()) continue;
      const auto seen = std::span(series.columns[targets[c]]).first(static_cast<std::size_t>(training_rows_));
      data::fit_changes(description_.targets[c], seen, description_.horizon);
    }
  }

  /// Targets that are not known, or held out, have weight 0.
  void fill(const std::vector<Index>& places, Part part, Example& example) const override {
    const Index end = part == Part::training ? training_rows_ : rows_;
    const auto inputs = static_cast<Index>(description_.inputs.size());
    const auto targets = static_cast<Index>(description_.targets.size());
    const Index outputs = description_.output_size();
    const auto count = static_cast<Index>(places.size());
    example.features.assign(static_cast<std::size_t>(count * inputs), 0.0f);
    example.targets.assign(static_cast<std::size_t>(count * outputs), 0.0f);
    example.weights.assign(static_cast<std::size_t>(count * outputs), 0.0f);
    for (Index i = 0; i < count; ++i) {
      const Index place = places[i];
      if (place < 0) continue;
      std::copy_n(inputs_.begin() + place * inputs, inputs, example.features.begin() + i * inputs);
      const Index known = std::min(description_.horizon, end - 1 - place) * targets;
      std::copy_n(targets_.begin() + (place + 1) * targets, known, example.targets.begin() + i * outputs);
      std::fill_n(example.weights.begin() + i * outputs, known, 1.0f);
    }
  }

  Index training_rows_;
  Index rows_;
  std::vector<float> inputs_;   // [rows, I]
  std::vector<float> targets_;  // [rows, targets]
};

}  // namespace

std::unique_ptr<Dataset> open_series(const std::string& path, const SeriesOptions& options) {
  data::check_validation_fraction(options.validation_fraction);
  data::check_delimiter(options.delimiter);
  require(options.horizon >= 1 && options.horizon <= 1'000'000, "horizon must be 1 to 1000000, not {}",
          options.horizon);
  const CsvTable table(path, options.delimiter);
  const auto inputs = options.inputs.empty() ? table.numeric_columns({}) : table.columns(options.inputs, "inputs");
  const auto targets = options.targets.empty() ? inputs : table.columns(options.targets, "targets");
  std::vector<std::size_t> used = inputs;
  used.insert(used.end(), targets.begin(), targets.end());
  const Series series = read_series(table, used);

  const Index held_out = data::held_out(series.rows(), options.validation_fraction);
  const Index training = series.rows() - held_out;
  if (training < options.horizon + 1 || (held_out > 0 && held_out < options.horizon)) {
    fail(ErrorCode::bad_input,
         "{}: {} rows are too few for horizon {}: training gets {} and needs {}, validation gets {} and needs {}", path,
         series.rows(), options.horizon, training, options.horizon + 1, held_out,
         options.validation_fraction > 0.0 ? options.horizon : 0);
  }
  return std::make_unique<SeriesDataset>(table, series, inputs, targets, held_out, options);
}

}  // namespace penstock
