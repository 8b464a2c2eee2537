#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/plural.h"
#include "base/quote.h"
#include "data/column_scaling.h"
#include "data/dataset.h"
#include "data/labelled/labelled_passes.h"
#include "data/labelled/labels.h"
#include "data/labelled/shuffle.h"
#include "data/model_to_continue.h"
#include "data/table/fill_missing.h"
#include "data/table/open_table.h"
#include "data/table/sentinels.h"
#include "data/table/sequence_names.h"
#include "data/table/table_values.h"
#include "penstock/data/dataset.h"
#include "penstock/data/labelled.h"
#include "penstock/data_description.h"

namespace penstock {
namespace {

using data::Field;
using data::OpenTable;
using data::shuffled;
using data::TableHeader;

struct Sequence {
  Index first = 0;  // row
  Index length = 0;
  std::int32_t label = 0;  // class
};

struct LabelledRows {
  data::TableValues values;  // one column an input
  std::vector<Sequence> sequences;
  std::vector<std::string> classes;
};

/// Collects rows into sequences, and labels into classes.
LabelledRows read_rows(const OpenTable& table, std::size_t sequence_column, std::size_t label_column,
                       const std::vector<std::size_t>& inputs, Missing missing) {
  data::ValueReader values(table, inputs, missing);
  LabelledRows result;
  data::LabelNumbers labels;
  data::SequenceNames names;  // in this file
  std::string current_sequence, current_label;
  Index count = 0;
  for (auto rows = table.rows(); rows.next(); ++count) {
    const TableHeader& header = rows.header();
    const std::string& sequence = header.label(rows.fields(), sequence_column);
    const std::string& label = header.label(rows.fields(), label_column);
    if (rows.starts_file()) names.clear();
    if (count == 0 || sequence != current_sequence || rows.starts_file()) {
      names.begin(rows.fields()[sequence_column], header, sequence_column);
      result.sequences.push_back({count, 0, labels.number_of(label)});
      current_sequence = sequence;
      current_label = label;
    } else if (label != current_label) {
      const Field& field = rows.fields()[label_column];
      fail(ErrorCode::bad_input, "{}:{}:{}: label {} in sequence {}, which began with label {}", header.source(),
           field.line, field.column, in_quotes(label), in_quotes(sequence), in_quotes(current_label));
    }
    values.add(rows);
    ++result.sequences.back().length;
  }
  const auto sorted = labels.sort();
  for (Sequence& sequence : result.sequences) sequence.label = sorted[sequence.label];
  result.classes = labels.labels();
  result.values = values.take();
  return result;
}

/// Numbers the labels as a model does.
void take_classes(LabelledRows& rows, const std::vector<std::string>& classes, const std::string& source) {
  const auto numbers = data::numbers_among(rows.classes, classes, source);
  for (Sequence& sequence : rows.sequences) sequence.label = numbers[sequence.label];
  rows.classes = classes;
}

/// Whole sequences, never cut.
class LabelledDataset final : public data::LabelledPasses {
 public:
  LabelledDataset(const OpenTable& table, LabelledRows rows, const std::vector<std::size_t>& inputs, Index held_out,
                  const LabelledOptions& options, const DataDescription* origin)
      : LabelledPasses("labelled", options.seed), sequences_(std::move(rows.sequences)) {
    description_.task = Task::classify;
    description_.labels.classes = std::move(rows.classes);
    description_.table = data::describe_table(table.format(), options.missing);
    const auto order = shuffled(static_cast<Index>(sequences_.size()), seed_, 0);
    validation_.assign(order.begin(), order.begin() + held_out);
    training_.assign(order.begin() + held_out, order.end());
    std::sort(validation_.begin(), validation_.end());
    std::vector<std::vector<double>> read;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      std::vector<double>& raw = rows.values.columns[i];
      Column column = fit(table.header(), inputs[i], raw);
      if (origin == nullptr && column.feature == Feature::category && !shows(raw)) continue;
      description_.inputs.push_back(std::move(column));
      read.push_back(std::move(raw));
    }
    rows.values.columns = std::move(read);
    if (origin != nullptr) data::take_scaling(description_, *origin, table.header().source());
    normalise(rows.values);
    set_fingerprint();
    begin_pass(0);
  }

 private:
  /// Returns whether a category occurs in the training sequences: otherwise a model cannot learn what it means.
  bool shows(const std::vector<double>& raw) const {
    return std::ranges::any_of(training_, [&](Index i) {
      const auto first = raw.begin() + sequences_[i].first;
      return std::find(first, first + sequences_[i].length, 1.0) != first + sequences_[i].length;
    });
  }

  /// Mean and spread over the training sequences alone.
  Column fit(const TableHeader& header, std::size_t position, const std::vector<double>& raw) const {
    if (const auto* const category = header.category(position)) {
      return {.name = header.names()[category->column], .feature = Feature::category, .category = category->text};
    }
    std::vector<double> seen;
    for (const Index i : training_) {
      const Sequence& sequence = sequences_[i];
      seen.insert(seen.end(), raw.begin() + sequence.first, raw.begin() + sequence.first + sequence.length);
    }
    return data::fit_column(header.names()[position], seen, header.source());
  }

  void normalise(const data::TableValues& values) {
    for (Index row = 0; row < values.rows(); ++row) {
      for (std::size_t i = 0; i < description_.inputs.size(); ++i) {
        features_.push_back(
            data::normalise(values.columns[i][row], description_.inputs[i], values.source(row), values.lines[row]));
      }
    }
  }

  void set_fingerprint() {
    fingerprint_ = data::fingerprint(data::bytes_of(features_), seed_);
    std::string shape = fmt::format("{};", validation_.size());
    for (const auto& sequence : sequences_) shape += fmt::format("{}:{};", sequence.length, sequence.label);
    fingerprint_ = data::fingerprint(shape, fingerprint_);
  }

  Index length(Index i) const override { return sequences_[i].length; }
  std::int32_t label(Index i) const override { return sequences_[i].label; }

  void fill_inputs(std::span<const Index> chosen, Example& example) const override {
    const auto inputs = static_cast<Index>(description_.inputs.size());
    example.features.assign(static_cast<std::size_t>(example.rows * example.steps * inputs), 0.0f);
    for (Index b = 0; b < example.rows; ++b) {
      const Sequence& sequence = sequences_[chosen[b]];
      std::copy_n(features_.begin() + sequence.first * inputs, sequence.length * inputs,
                  example.features.begin() + b * example.steps * inputs);
    }
  }

  std::vector<Sequence> sequences_;
  std::vector<float> features_;  // [rows of the file, I]
};

/// Returns the columns that a table offers and, for requested ones, whether they are categories.
OpenTable::Choice offered_inputs(const OpenTable& table, const LabelledOptions& options, std::size_t sequence,
                                 std::size_t label) {
  data::ColumnQuestion question{.excluded = {sequence, label},
                                .categories = data::category_choice(options.categories, table.header()),
                                .needs_number = false};
  question.only = table.columns(options.inputs, "inputs");
  return table.choose_columns(question);
}

}  // namespace

std::unique_ptr<Dataset> open_labelled(const TableSources& sources, const LabelledOptions& given,
                                       const DataDescription* origin) {
  LabelledOptions options = given;
  if (origin != nullptr) {
    data::check_origin_use(*origin, "labelled sequences", sources.name());
    options.inputs = data::value_names(origin->inputs);
  }
  data::check_validation_fraction(options.validation_fraction);
  OpenTable table(sources, options.format);
  const std::string& path = table.header().source();
  const std::size_t sequence = table.column(options.sequence_column, "sequence_column");
  const std::size_t label = table.column(options.label_column, "label_column");
  require_about(sequence != label, "sequence_column", " and label_column are both {}", in_quotes(options.label_column));
  OpenTable::Choice choice;
  if (origin == nullptr) choice = offered_inputs(table, options, sequence, label);
  if (origin != nullptr) choice.categories = data::category_columns(*origin, table.header());
  auto inputs =
      options.inputs.empty() ? choice.columns : table.columns(options.inputs, origin ? "the model's inputs" : "inputs");
  for (const data::CategoryColumn& category : choice.categories) {
    std::erase(inputs, category.column);
    std::ranges::copy(table.add_categories(category), std::back_inserter(inputs));
  }
  require_about(std::find(inputs.begin(), inputs.end(), label) == inputs.end(), "inputs",
                ": column {} is the label and cannot be an input too", in_quotes(options.label_column));

  LabelledRows rows = read_rows(table, sequence, label, inputs, options.missing);
  std::vector<Index> begins;
  for (const Sequence& part : rows.sequences) begins.push_back(part.first);
  std::vector<std::string> names;
  for (const std::size_t input : inputs) names.push_back(table.header().names()[input]);
  data::fill_missing(rows.values, begins, options.missing, names);
  const auto count = static_cast<Index>(rows.sequences.size());
  const Index held_out = data::held_out(count, options.validation_fraction);
  if (count - held_out < 1) {
    fail(ErrorCode::bad_input, "{}: {} {} too few: training needs one{}", path, counted(count, "sequence"),
         count == 1 ? "is" : "are", held_out > 0 ? " and validation one" : "");
  }
  if (rows.classes.size() < 2) {
    fail(ErrorCode::bad_input, "{}: every sequence has the label {}; there must be at least two labels", path,
         in_quotes(rows.classes[0]));
  }
  if (origin != nullptr) take_classes(rows, origin->labels.classes, path);
  std::string filled = data::describe_filled(rows.values, options.missing);
  std::vector<Message> suspect = data::sentinels(rows.values, names);
  auto dataset = std::make_unique<LabelledDataset>(table, std::move(rows), inputs, held_out, options, origin);
  choice.categories = data::category_columns(dataset->description(), table.header());
  std::vector<Message> findings = table.reading(inputs, choice);
  if (!filled.empty()) findings.push_back(std::move(filled));
  std::ranges::move(suspect, std::back_inserter(findings));
  if (const auto unseen = dataset->labels_held_out(); !unseen.empty()) {
    findings.push_back("all sequences of a label are held out, so that training learns nothing of it: " +
                       data::list_of(unseen));
  }
  dataset->set_reading(std::move(findings));
  return dataset;
}

}  // namespace penstock
