#include "penstock/train/search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/quote.h"
#include "base/warning.h"
#include "penstock/file_writer.h"
#include "penstock/train/fit.h"
#include "train/search_space.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr double share_to_confirm = 0.35;    // of the time, at the end, for which the best trials are trained again
constexpr std::size_t most_repetitions = 3;  // with seeds of their own
constexpr double shortest_runs = 12.0;       // trainings with a limit in time that a search makes at least

/// That of a choice, which is appended where it is a new one.
SearchTrial& trial_of(const SearchChoice& choice, std::vector<SearchTrial>& trials) {
  const auto known = std::ranges::find(trials, choice, &SearchTrial::choice);
  return known != trials.end() ? *known
                               : trials.emplace_back(SearchTrial{.choice = choice, .losses = {}, .seconds = 0.0});
}

/// The file of a search: a line for what it is about, then one for each training.
class SearchRecord {
 public:
  SearchRecord(const SearchOptions& options, const json& about) : path_(options.path) {
    if (path_.empty()) return;
    if (options.resume) read(about);
    if (options.resume && !empty_) return;
    text_.clear();
    append(about);
  }

  std::vector<SearchTrial> take_trials() { return std::move(trials_); }
  double seconds() const { return seconds_; }
  /// Returns whether the search came to its end.
  bool ended() const { return ended_; }

  void end() { append({{"ended", true}}); }
  void add(const SearchChoice& choice, double loss, double seconds) {
    append({{"cell", choice.cell},
            {"width", choice.width},
            {"dropout", choice.dropout},
            {"learning_rate", choice.learning_rate},
            {"loss", std::isfinite(loss) ? json(loss) : json()},
            {"seconds", seconds}});
  }

 private:
  void read(const json& about) {
    std::ifstream file(path_);
    std::string line;
    Index number = 0;
    try {
      for (; std::getline(file, line); ++number) {
        // A process that was killed while it wrote leaves a last line without an end.
        if (file.eof() && !json::accept(line)) break;
        const json fields = json::parse(line);
        if (number > 0) {
          take(fields);
        } else if (fields != about) {
          fail(ErrorCode::incompatible, "{}: this is another search: it was about {}, not {}", path_, fields.dump(),
               about.dump());
        }
        text_ += line + '\n';
      }
    } catch (const json::exception&) {
      fail(ErrorCode::bad_input, "{}:{}: no trial of a search: {}", path_, number + 1, in_quotes(line));
    }
    empty_ = number == 0;
  }

  void take(const json& fields) {
    if (fields.contains("ended")) {
      ended_ = true;
      return;
    }
    const SearchChoice choice{fields.at("cell").get<std::string>(), fields.at("width").get<Index>(),
                              fields.at("dropout").get<double>(), fields.at("learning_rate").get<double>()};
    SearchTrial& trial = trial_of(choice, trials_);
    const json& loss = fields.at("loss");
    trial.losses.push_back(loss.is_null() ? INFINITY : loss.get<double>());
    const double seconds = fields.at("seconds").get<double>();
    trial.seconds += seconds;
    seconds_ += seconds;
  }

  void append(const json& line) {
    if (path_.empty()) return;
    text_ += line.dump() + '\n';
    try {
      write_file(path_, text_);
    } catch (const Error& error) {
      // The next trial writes this one as well; a search that nobody interrupts needs no record.
      warn("no record of the search: {}", error.what());
    }
  }

  std::string path_;
  std::string text_;  // all lines of the file
  bool empty_ = true, ended_ = false;
  double seconds_ = 0.0;
  std::vector<SearchTrial> trials_;
};

class Search {
 public:
  Search(const ModelSpec& spec, const Dataset& data, const TrainOptions& options, const SearchOptions& search,
         const SearchCallbacks& callbacks)
      : spec_(spec),
        options_(options),
        search_(search),
        callbacks_(callbacks),
        proposals_(search.space, search.seed),
        record_(search, about(data)) {
    if (data.folds() == 0) fail(ErrorCode::unsupported, "a search needs data that have an end");
    for (Index fold = 0; fold < data.folds(); ++fold) inner_.push_back(data.inner(fold));
    options_.checkpoint_path.clear();
    options_.metrics_path.clear();
    options_.tensorboard_path.clear();
    options_.validate_every = 0.0;
    options_.log_every = 0.1;  // whoever watches is told how long it has been
    if (options_.max_seconds > 0.0) {
      options_.max_seconds =
          std::min(options_.max_seconds, search.seconds / shortest_runs / static_cast<double>(inner_.size()));
    }
    result_.trials = record_.take_trials();
  }

  SearchResult run() {
    began_ = Clock::now();
    if (!record_.ended()) try_all();
    result_.seconds = seconds();
    if (result_.trials.empty() && !result_.interrupted) {
      fail(ErrorCode::invalid_argument, "search: not one training ended within {:g} s; it needs more time",
           search_.seconds);
    }
    if (!result_.interrupted && !record_.ended()) record_.end();
    if (!result_.trials.empty()) result_.best = result_.trials[training::best_trial(result_.trials)].choice;
    return std::move(result_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  void try_all() {
    if (result_.trials.empty()) try_out(first_choice());
    while (!over() && seconds() < (1.0 - share_to_confirm) * search_.seconds) {
      const std::optional<SearchChoice> choice = proposals_.next(result_.trials);
      if (!choice) break;
      try_out(*choice);
    }
    while (!over()) {
      const auto again = training::trial_to_repeat(result_.trials, most_repetitions);
      if (!again) break;
      try_out(result_.trials[*again].choice);
    }
  }

  /// Tells one search from another, for whoever goes on with it.
  json about(const Dataset& data) const {
    return {{"seed", search_.seed},
            {"options_seed", options_.seed},
            {"start", first_choice().text()},
            {"data", data.position()}};
  }

  SearchChoice first_choice() const { return {spec_.cell, spec_.width, spec_.dropout, options_.learning_rate}; }

  double seconds() const { return record_.seconds() + std::chrono::duration<double>(Clock::now() - began_).count(); }

  bool over() {
    result_.interrupted = result_.interrupted || (callbacks_.stop && callbacks_.stop());
    return result_.interrupted || seconds() >= search_.seconds;
  }

  /// Trains one model on each division; nothing comes of it when time is up before.
  void try_out(const SearchChoice& choice) {
    const double before = seconds();
    const auto known = std::ranges::find(result_.trials, choice, &SearchTrial::choice);
    const auto repetition = known == result_.trials.end() ? std::size_t{0} : known->losses.size();
    double sum = 0.0;
    for (const auto& data : inner_) {
      const std::optional<double> loss = train_once(choice, *data, options_.seed + repetition);
      if (!loss) return;
      sum += *loss / static_cast<double>(inner_.size());
    }
    SearchTrial& trial = trial_of(choice, result_.trials);
    const double took = seconds() - before;
    trial.losses.push_back(sum);
    trial.seconds += took;
    record_.add(trial.choice, sum, took);
    const auto number = &trial - result_.trials.data();
    const bool best = static_cast<std::size_t>(number) == training::best_trial(result_.trials);
    if (callbacks_.trial) callbacks_.trial(trial, number, best);
  }

  /// The loss on what the division holds out, infinity where training failed; nothing when time was up.
  std::optional<double> train_once(const SearchChoice& choice, Dataset& data, std::uint64_t seed) {
    ModelSpec spec = spec_;
    TrainOptions options = options_;
    choice.apply(spec, options);
    options.seed = seed;
    if (spec.corrects_branch()) take_autoregression(spec, data);
    Model model = new_model(spec, data, seed);
    TrainCallbacks callbacks;
    callbacks.stop = [&] { return over(); };
    callbacks.progress = [&](const Progress&) {
      if (callbacks_.progress) callbacks_.progress(choice, seconds());
    };
    if (callbacks_.progress) callbacks_.progress(choice, seconds());
    const std::string start = data.position();
    try {
      const TrainResult result = train(model, data, options, callbacks);
      data.restore(start);
      if (result.interrupted) return std::nullopt;
      return std::isfinite(result.validation->loss) ? result.validation->loss : INFINITY;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::numerical) throw;
      data.restore(start);
      return INFINITY;  // a rate that is too high is a finding
    }
  }

  ModelSpec spec_;
  TrainOptions options_;
  SearchOptions search_;
  const SearchCallbacks& callbacks_;
  training::Proposals proposals_;
  SearchRecord record_;
  std::vector<std::unique_ptr<Dataset>> inner_;
  Clock::time_point began_;
  SearchResult result_;
};

}  // namespace

std::string SearchChoice::text() const {
  return fmt::format("{} of width {}, dropout {:g}, learning rate {:g}", cell, width, dropout, learning_rate);
}

void SearchChoice::apply(ModelSpec& spec, TrainOptions& options) const {
  spec.cell = cell;
  spec.width = width;
  spec.dropout = dropout;
  options.learning_rate = learning_rate;
}

double SearchTrial::loss() const {
  return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size());
}

double SearchResult::loss() const { return trials[training::best_trial(trials)].loss(); }

SearchSpace suggest_space(const ModelSpec& spec, const TrainOptions& options, const std::vector<std::string>& fixed) {
  SearchSpace space;
  space.cells = {"mingru", "gru", "lstm", "minlstm", "slstm"};
  if (spec.heads > 1 || std::ranges::find(space.cells, spec.cell) == space.cells.end()) space.cells = {spec.cell};
  constexpr Index narrowest = 8;
  for (const Index width : {spec.width / 4, spec.width / 2, spec.width, 2 * spec.width}) {
    if (width >= narrowest && width % spec.heads == 0) space.widths.push_back(width);
  }
  space.dropouts = {0.0, 0.1, 0.2, 0.35, 0.5};
  for (const double factor : {0.1, 1.0 / 6.0, 1.0 / 3.0, 2.0 / 3.0, 1.0, 2.0, 10.0 / 3.0}) {
    space.learning_rates.push_back(factor * options.learning_rate);
  }
  for (const std::string& name : fixed) {
    if (name == "cell") space.cells = {spec.cell};
    if (name == "width") space.widths = {spec.width};
    if (name == "dropout") space.dropouts = {spec.dropout};
    if (name == "learning_rate") space.learning_rates = {options.learning_rate};
  }
  return space;
}

SearchResult search(const ModelSpec& spec, const Dataset& data, const TrainOptions& options,
                    const SearchOptions& search_options, const SearchCallbacks& callbacks) {
  require(std::isfinite(search_options.seconds) && search_options.seconds > 0.0, "search must be positive, not {}",
          search_options.seconds);
  const SearchSpace& space = search_options.space;
  require(!space.cells.empty() && !space.widths.empty() && !space.dropouts.empty() && !space.learning_rates.empty(),
          "space must have at least one value of each kind");
  require(spec.members == 1, "a search is for single models, not for an ensemble of {}", spec.members);
  return Search(spec, data, options, search_options, callbacks).run();
}

}  // namespace penstock
