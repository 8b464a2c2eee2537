#include "nn/model/model_spec.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/quote.h"
#include "nn/closed_form/linear_branch.h"
#include "nn/model/model_graph.h"
#include "plan/cell_table.h"

namespace penstock::nn {

namespace {

constexpr Index largest_width = 65536;
constexpr Index largest_blocks = 1024;
constexpr Index largest_taps = 1024;
constexpr Index most_members = 1024;
constexpr Index largest_season = Index{1} << 40;
constexpr double largest_feed_forward = 64.0;
constexpr Index largest_vocabulary = 1 << 20;
constexpr Index largest_text = 1 << 20;
constexpr Index largest_horizon = 65536;
constexpr Index largest_output = 1 << 20;
constexpr double largest_model = 1ull << 33;  // parameters: 32 GiB in float

void check_columns(const char* name, const std::vector<Column>& columns) {
  check_range(fmt::format("number of {}", name).c_str(), static_cast<Index>(columns.size()), 1, largest_width);
  for (const Column& column : columns) {
    require(std::isfinite(column.mean), "{}: mean of column {} must be finite", name, in_quotes(column.name));
    require(std::isfinite(column.scale) && column.scale > 0.0, "{}: scale of column {} must be positive, not {}", name,
            in_quotes(column.name), column.scale);
    check_enum("feature", column.feature, Feature::elapsed);
    check_enum("dates", column.dates, DateForm::milliseconds);
    const bool is_category = column.feature == Feature::category;
    check_range("ahead", column.ahead, 0, column.feature == Feature::value || is_category ? largest_horizon : 0);
    require(is_category != column.category.empty(),
            "{}: column {} must have a category if that is read of it, and none otherwise", name,
            in_quotes(column.name));
    require(!is_category || (column.mean == 0.0 && column.scale == 1.0 && !column.logarithm),
            "{}: categories of column {} must not be scaled", name, in_quotes(column.name));
  }
}

void check_scalings(const Group& group, const std::vector<Scaling>& scalings, const std::vector<Column>& columns) {
  require(scalings.size() == columns.size(), "groups: {} has scalings of {} columns, not of {}", in_quotes(group.name),
          scalings.size(), columns.size());
  for (const Scaling& scaling : scalings) {
    require(std::isfinite(scaling.mean) && std::isfinite(scaling.scale) && scaling.scale > 0.0,
            "groups: means of {} must be finite and scales positive, not {} and {}", in_quotes(group.name),
            scaling.mean, scaling.scale);
  }
}

void check_own(const Autoregression& own, const DataDescription& data) {
  check_range("lags", own.lags, 0, LinearBranch::most_lags);
  const auto check = [](const char* name, const std::vector<float>& values, Index size) {
    require(static_cast<Index>(values.size()) == size, "own: {} must hold {} values, not {}", name, size,
            values.size());
    require(std::ranges::all_of(values, [](float value) { return std::isfinite(value); }), "own: {} must be finite",
            name);
  };
  check("weights", own.weights, own.lags * data.output_size());
  check("bias", own.bias, own.lags > 0 ? data.output_size() : 0);
  const auto effects = static_cast<Index>(data.inputs.size() * data.targets.size());
  check("effects", own.effects, own.effects.empty() || !data.reads_ahead() || own.lags == 0 ? 0 : effects);
}

void check_groups(const DataDescription& data) {
  require(data.series.group_column.empty() == data.series.groups.empty(),
          "groups must go with the column that names them");
  require(!data.series.groups_are_files || !data.series.groups.empty(), "groups must be there if they are files");
  for (const Group& group : data.series.groups) {
    check_scalings(group, group.inputs, data.inputs);
    check_scalings(group, group.targets, data.targets);
    check_own(group.own, data);
  }
}

void check_row_dates(const RowDates& dates) {
  check_enum("irregular", dates.irregular, Irregular::refuse);
  check_enum("dates", dates.form, DateForm::milliseconds);
  require_about(dates.irregular != Irregular::automatic, "irregular", " must say what becomes of rows, not automatic");
  require_about(dates.irregular == Irregular::ignore || !dates.column.empty(), "irregular",
                " must go with the column that holds the dates");
  require(dates.column.empty() || (std::isfinite(dates.step) && dates.step > 0.0),
          "the time between two rows must be positive, not {} s", dates.step);
}

void check_data(const DataDescription& data) {
  check_enum("task", data.task, Task::classify);
  check_range("vocabulary", data.vocabulary, data.task == Task::language ? 1 : 0, largest_vocabulary);
  if (data.vocabulary == 0) {
    check_columns("inputs", data.inputs);
  } else {
    require_about(data.inputs.empty(), "inputs", " must be empty for a model of tokens");
  }
  if (data.task == Task::forecast) {
    check_columns("targets", data.targets);
    for (const Column& target : data.targets) {
      require_about(target.feature == Feature::value && target.ahead == 0, "targets",
                    ": {} is not a value that could be forecast", target.title());
    }
    check_range("horizon", data.series.horizon, 1, largest_horizon);
    check_range("season", data.series.season, 0, largest_season);
  }
  check_groups(data);
  check_row_dates(data.series.row_dates);
  require(data.task != Task::classify || !data.labels.classes.empty(), "classes must name at least one label");
  if (data.labels_texts()) {
    require_about(data.task == Task::classify && data.vocabulary == 256, "text_column",
                  " is for a model that classifies and has a vocabulary of 256 bytes");
  }
  check_range("longest_text", data.labels.longest_text, data.labels_texts() ? 1 : 0,
              data.labels_texts() ? largest_text : 0);
  check_range("size of the output", data.output_size(), 1, largest_output);
}

/// In double, because a file may claim anything.
double count(const ModelSpec& spec, const DataDescription& data) {
  const CellInfo& cell = find_cell(spec.cell);
  const auto real = [](Index n) { return static_cast<double>(n); };
  const double width = real(spec.width), hidden = real(hidden_size(spec)), gates = real(cell.gates);
  const double inner = real(feed_forward_size(spec)), outputs = real(data.output_size());
  double block = gates * hidden * (width + 1.0) + real(plan::cell_traits(spec.cell).learnt) * hidden;
  if (!cell.scan) block += gates * hidden * hidden / real(spec.heads);
  if (spec.convolution > 0) block += width * (real(spec.convolution) + 1.0);
  if (hidden_size(spec) != spec.width) block += width * (hidden + 1.0);
  if (inner > 0.0) block += width + 2.0 * inner * (width + 1.0) + width * (inner + 1.0);
  const Index inputs = spec.from_last ? changes_of(data).width() : data.input_size();
  const double input = data.vocabulary > 0 ? real(data.vocabulary) * width : width * (real(inputs) + 1.0);
  const double norms = real(spec.end_norms ? spec.blocks + 1 : std::max<Index>(spec.blocks - 1, 0));
  const double member = input + real(spec.blocks) * block + norms * width + outputs * (width + 1.0);
  return real(spec.members) * member + (spec.branch ? spec.branch->parameter_count(data) : 0.0);
}

}  // namespace

void check_range(const char* name, Index value, Index low, Index high) {
  require_argument(value >= low && value <= high, name, value, "{} to {}", low, high);
}

void check_spec(const ModelSpec& spec, const DataDescription& data) {
  const CellInfo& cell = find_cell(spec.cell);
  check_range("width", spec.width, 1, largest_width);
  check_range("blocks", spec.blocks, spec.branch && !spec.branch->precedes_layers() ? 0 : 1, largest_blocks);
  check_range("hidden_size", spec.hidden_size, 0, largest_width);
  check_range("heads", spec.heads, 1, largest_width);
  require_argument(spec.heads == 1 || !cell.scan, "heads", spec.heads, "1 for cell {}, which has no recurrent matrix",
                   cell.name);
  require_about(hidden_size(spec) % spec.heads == 0, "heads", " must divide the hidden size {}, {} does not",
                hidden_size(spec), spec.heads);
  check_range("convolution", spec.convolution, 0, largest_taps);
  require_argument(spec.feed_forward >= 0.0 && spec.feed_forward <= largest_feed_forward, "feed_forward",
                   spec.feed_forward, "0 to {}", largest_feed_forward);
  require_argument(spec.dropout >= 0.0 && spec.dropout < 1.0, "dropout", spec.dropout, "in [0, 1)");
  check_data(data);
  require(!spec.from_last || (data.task == Task::forecast && !changes_of(data).columns.empty()),
          "from_last must be false for a model that forecasts none of its inputs");
  require(spec.from_last || data.series.own_forecasts().empty(),
          "from_last must be true for a model with series that have a forecast of their own");
  check_range("members", spec.members, 1, most_members);
  if (spec.branch) spec.branch->check(spec, data);
  const double parameters = count(spec, data);
  require_about(parameters <= largest_model, "width",
                ", blocks and hidden_size make a model of {:.3g} parameters, more than {:.3g}", parameters,
                largest_model);
}

Index hidden_size(const ModelSpec& spec) { return spec.hidden_size == 0 ? spec.width : spec.hidden_size; }

Index feed_forward_size(const ModelSpec& spec) {
  if (spec.feed_forward == 0.0) return 0;
  return std::max<Index>(1, std::llround(spec.feed_forward * static_cast<double>(spec.width)));
}

Index parameter_count(const ModelSpec& spec, const DataDescription& data) {
  return static_cast<Index>(count(spec, data));
}

}  // namespace penstock::nn
