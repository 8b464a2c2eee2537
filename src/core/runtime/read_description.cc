#include "runtime/read_description.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "runtime/custom_cell.h"
#include "runtime/step_kernels.h"

namespace penstock::runtime {

namespace {

constexpr Index kNewestVersion = 2;
// Limits of nn/model/model_spec.cc and the closed-form branches.
constexpr Index kLargestWidth = 65536, kMostBlocks = 1024, kMostTaps = 1024, kMostMembers = 1024, kMostLags = 65536,
                kMostFilters = 65536, kMostDilations = 7, kLargestVocabulary = 1 << 20, kLargestHorizon = 65536,
                kLargestOutput = 1 << 20, kHighestRate = 10'000'000;
constexpr double kLargestFeedForward = 64.0;

/// Fields that tell how text becomes rows, or how answers become texts: what a step computes does not depend on them.
constexpr std::string_view kOfText[] = {"season", "delimiter", "decimal",   "header",  "missing", "latency",
                                        "spread", "groups",    "row_dates", "undated", "texts"};

class Reader {
 public:
  Reader(std::string_view text, Description& description, Failure& failure)
      : json_(text, "its description"), to_(description), failure_(failure) {}

  bool read() {
    const bool read = json_.object([&](std::string_view key) {
      if (key == "format_version") return json_.integer(to_.version);
      if (key == "model") return once(has_model_) && json_.object([&](std::string_view of) { return model(of); });
      if (key == "data") return once(has_data_) && json_.object([&](std::string_view of) { return data(of); });
      return json_.mistake("format_version, model or data");
    });
    if (!read || !json_.finish()) return failure_.in_json(json_);
    if (to_.version < 1 || to_.version > kNewestVersion) {
      return failure_.in_file(PENSTOCK_INCOMPATIBLE,
                              "its format_version is %lld, this version of Penstock reads 1 to %lld",
                              static_cast<long long>(to_.version), static_cast<long long>(kNewestVersion));
    }
    if (!has_model_ || !has_data_) return refuse("model and data are missing");
    return check_cell() && check_data() && check_model();
  }

 private:
  bool refuse(const char* what) { return failure_.in_file(PENSTOCK_BAD_INPUT, "its description: %s", what); }
  bool once(bool& seen) {
    if (seen) return json_.mistake("each field once");
    return seen = true;
  }

  bool model(std::string_view key) {
    if (key == "cell") return json_.string(to_.cell);
    if (key == "cell_equations") {
      return once(has_equations_) && read_custom_cell(json_, custom_name_, to_.custom, failure_);
    }
    if (key == "width") return json_.integer(to_.width);
    if (key == "blocks") return json_.integer(blocks_);
    if (key == "hidden_size") return json_.integer(to_.hidden);
    if (key == "heads") return json_.integer(to_.heads);
    if (key == "convolution") return json_.integer(to_.taps);
    if (key == "feed_forward") return json_.number(feed_forward_);
    if (key == "dropout") return json_.number(dropout_);
    if (key == "end_norms") return json_.boolean(to_.end_norms);
    if (key == "from_last") return json_.boolean(to_.from_last);
    if (key == "lags") return json_.integer(to_.lags);
    if (key == "known_effects") return json_.boolean(to_.known_effects);
    if (key == "filters") return json_.integer(to_.filters);
    if (key == "dilations") return json_.integer(to_.dilations);
    if (key == "members") return json_.integer(to_.members);
    if (key == "int8") return json_.array([&] { return json_.string(to_.int8.emplace_back()); });
    return json_.mistake("a field that this version of Penstock knows");
  }

  bool data(std::string_view key) {
    if (key == "task") return task();
    if (key == "vocabulary") return json_.integer(to_.vocabulary);
    if (key == "inputs") return once(has_inputs_) && columns(to_.inputs);
    if (key == "targets") return once(has_targets_) && columns(to_.targets);
    if (key == "horizon") return json_.integer(horizon_);
    if (key == "sample_rate") return json_.integer(to_.sample_rate);
    if (key == "classes") {
      return once(has_classes_) && json_.array([&] { return json_.string(to_.classes.emplace_back()); });
    }
    if (std::ranges::find(kOfText, key) != std::end(kOfText)) return json_.skip();
    return json_.mistake("a field that this version of Penstock knows");
  }

  bool task() {
    std::string name;
    if (!json_.string(name)) return false;
    has_task_ = true;
    to_.task = name == "forecast" ? PENSTOCK_FORECAST : name == "classify" ? PENSTOCK_CLASSIFY : PENSTOCK_LANGUAGE;
    return to_.task != PENSTOCK_LANGUAGE || name == "language" || json_.mistake("language, forecast or classify");
  }

  bool columns(std::vector<ModelColumn>& list) {
    return json_.array([&] {
      if (static_cast<Index>(list.size()) == kLargestWidth) return json_.mistake("fewer columns");
      ModelColumn& column = list.emplace_back();
      return json_.object([&](std::string_view key) { return column_field(key, column); }) &&
             ((column.scale > 0.0 && column.ahead >= 0 && column.ahead <= kLargestHorizon) ||
              refuse("a column has an impossible scale or place"));
    });
  }

  bool column_field(std::string_view key, ModelColumn& column) {
    if (key == "name") return json_.string(column.name);
    if (key == "mean") return json_.number(column.mean);
    if (key == "scale") return json_.number(column.scale);
    if (key == "logarithm") return json_.boolean(column.logarithm);
    if (key == "non_negative") return json_.boolean(column.non_negative);
    if (key == "ahead") return json_.integer(column.ahead);
    if (key == "feature") {
      std::string name;
      if (!json_.string(name)) return false;
      column.is_value = name == "value";
      return true;
    }
    if (key == "category" || key == "dates") return json_.skip();
    return json_.mistake("a field that this version of Penstock knows");
  }

  bool check_cell() {
    if (has_equations_ && custom_name_ != to_.cell) return refuse("the equations are of another cell");
    if (has_equations_ || find_cell_form(to_.cell) != nullptr) return true;
    return failure_.in_file(PENSTOCK_INCOMPATIBLE, "cell %s is none of this version of Penstock",
                            Quoted(to_.cell).c_str());
  }

  bool check_data() {
    const auto within = [](Index value, Index least, Index most) { return value >= least && value <= most; };
    if (!has_task_ || !has_inputs_ || !has_targets_ || !has_classes_) return refuse("a field of the data is missing");
    const bool forecasts = to_.task == PENSTOCK_FORECAST;
    if (!within(to_.vocabulary, to_.task == PENSTOCK_LANGUAGE ? 1 : 0, kLargestVocabulary) ||
        (to_.vocabulary > 0) != to_.inputs.empty()) {
      return refuse("vocabulary and inputs contradict each other");
    }
    if (forecasts && (!within(horizon_, 1, kLargestHorizon) || to_.targets.empty())) {
      return refuse("a forecast needs targets and a horizon");
    }
    for (const ModelColumn& target : to_.targets) {
      if (!target.is_value || target.ahead != 0) return refuse("a target must be a value");
    }
    to_.horizon = forecasts ? horizon_ : 0;
    if (!within(to_.sample_rate, 0, kHighestRate)) return refuse("sample_rate is impossible");
    if (!within(to_.output_size(), 1, kLargestOutput)) return refuse("the number of outputs is impossible");
    return true;
  }

  bool check_model() {
    const auto check = [&](const char* name, Index value, Index least, Index most) {
      if (value >= least && value <= most) return true;
      return failure_.in_file(PENSTOCK_BAD_INPUT, "its description: %s must be %lld to %lld, not %lld", name,
                              static_cast<long long>(least), static_cast<long long>(most),
                              static_cast<long long>(value));
    };
    const bool filters = to_.filters != 0 || to_.dilations != 0;
    if (!check("width", to_.width, 1, kLargestWidth) || !check("blocks", blocks_, filters ? 0 : 1, kMostBlocks) ||
        !check("hidden_size", to_.hidden, 0, kLargestWidth) || !check("heads", to_.heads, 1, kLargestWidth) ||
        !check("convolution", to_.taps, 0, kMostTaps) || !check("members", to_.members, 1, kMostMembers) ||
        !check("lags", to_.lags, 0, to_.from_last ? kMostLags : 0) ||
        !check("filters", to_.filters, filters ? 2 : 0, kMostFilters) ||
        !check("dilations", to_.dilations, filters ? 1 : 0, kMostDilations)) {
      return false;
    }
    to_.blocks = blocks_;
    if (to_.hidden == 0) to_.hidden = to_.width;
    const bool scan = to_.custom != nullptr ? to_.custom->cell.scan : find_cell_form(to_.cell)->scan;
    if (to_.hidden % to_.heads != 0 || (scan && to_.heads > 1)) return refuse("heads must divide the hidden size");
    if (!(feed_forward_ >= 0.0 && feed_forward_ <= kLargestFeedForward)) return refuse("feed_forward is impossible");
    if (!(dropout_ >= 0.0 && dropout_ < 1.0)) return refuse("dropout is impossible");
    if (feed_forward_ > 0.0) {
      to_.inner = std::max<Index>(1, std::llround(feed_forward_ * static_cast<double>(to_.width)));
    }
    const bool labels_sequences = to_.task == PENSTOCK_CLASSIFY && to_.vocabulary == 0;
    if (filters && (to_.filters % 2 != 0 || to_.lags > 0 || !labels_sequences)) return refuse("filters are impossible");
    if (to_.known_effects && to_.lags == 0) return refuse("known_effects needs lags");
    if (to_.from_last && to_.task != PENSTOCK_FORECAST) return refuse("from_last is of forecasts");
    return true;
  }

  JsonReader json_;
  Description& to_;
  Failure& failure_;
  std::string custom_name_;
  Index blocks_ = -1, horizon_ = 0;
  double feed_forward_ = -1.0, dropout_ = -1.0;
  bool has_model_ = false, has_data_ = false, has_equations_ = false, has_task_ = false, has_inputs_ = false,
       has_targets_ = false, has_classes_ = false;
};

}  // namespace

Index Description::output_size() const {
  if (task == PENSTOCK_LANGUAGE) return vocabulary;
  if (task == PENSTOCK_FORECAST) return horizon * static_cast<Index>(targets.size());
  return static_cast<Index>(classes.size());
}

bool read_description(std::string_view text, Description& description, Failure& failure) {
  return Reader(text, description, failure).read();
}

}  // namespace penstock::runtime
