#include "verbs/train/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "terminal/progress_line.h"
#include "terminal/signals.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

constexpr double seconds_in_a_minute = 60.0;

/// A line for every training as it ends, and on a terminal a bar below them.
class SearchReport {
 public:
  SearchReport(double budget, bool quiet) : budget_(budget), quiet_(quiet), line_(quiet) {
    if (quiet_) return;
    say(fmt::format("search {} for a model on the training part only: its first part trains, the rest scores\n",
                    clock_time(budget_)));
    say("         cell     width  dropout  rate      loss       trained  \n");
  }

  void progress(const SearchChoice& choice, double seconds) {
    if (!line_.shown()) return;
    line_.draw_bar(seconds / budget_,
                   fmt::format(" {} left  {}", clock_time(std::max(0.0, budget_ - seconds)), choice.text()));
  }

  void trial(const SearchTrial& trial, Index number, bool best) {
    if (quiet_) return;
    line_.erase();
    const SearchChoice& choice = trial.choice;
    const std::size_t times = trial.losses.size();
    say(fmt::format("{:>6}   {:<8} {:>5}  {:<7g}  {:<8.3g}  {:<9}  {}{}\n", number + 1, choice.cell, choice.width,
                    choice.dropout, choice.learning_rate, short_number(trial.loss()),
                    times == 1 ? "once" : fmt::format("{} times", times), best ? "  the best so far" : ""));
  }

 private:
  double budget_;
  bool quiet_;
  ProgressLine line_;
};

/// What was given is not looked for.
SearchSpace open_space(const ModelSpec& spec, const TrainOptions& options, const TrainArguments& arguments) {
  SearchSpace space = suggest_space(spec, options);
  if (arguments.model.cell) space.cells = {spec.cell};
  if (arguments.model.width) space.widths = {spec.width};
  if (arguments.model.dropout) space.dropouts = {spec.dropout};
  if (arguments.learning_rate) space.learning_rates = {options.learning_rate};
  return space;
}

}  // namespace

std::string search_record(const std::string& checkpoint) { return checkpoint + ".search"; }

SearchResult search_model(const ModelSpec& spec, const Dataset& data, const TrainOptions& options,
                          const TrainArguments& arguments) {
  SearchOptions search;
  search.space = open_space(spec, options, arguments);
  search.seconds = seconds_in_a_minute * *arguments.search;
  search.path = search_record(options.checkpoint_path);
  search.resume = arguments.resume && std::filesystem::exists(search.path);
  search.seed = options.seed;
  SearchReport report(search.seconds, arguments.quiet);
  SearchCallbacks callbacks;
  callbacks.stop = interrupted;
  callbacks.progress = [&](const SearchChoice& choice, double seconds) { report.progress(choice, seconds); };
  callbacks.trial = [&](const SearchTrial& trial, Index number, bool best) { report.trial(trial, number, best); };
  return penstock::search(spec, data, options, search, callbacks);
}

std::string describe_search(const SearchResult& result) {
  std::size_t trainings = 0;
  for (const SearchTrial& trial : result.trials) trainings += trial.losses.size();
  return fmt::format(
      "{} training{} of {} model{} in {}; best: {}: loss {} on the rest of the training part, {} with the defaults",
      trainings, trainings == 1 ? "" : "s", result.trials.size(), result.trials.size() == 1 ? "" : "s",
      clock_time(result.seconds), result.best.text(), short_number(result.loss()),
      short_number(result.trials.front().loss()));
}

Json search_json(const SearchResult& result) {
  Json trials = Json::array();
  for (const SearchTrial& trial : result.trials) {
    const SearchChoice& choice = trial.choice;
    trials.push_back({{"cell", choice.cell},
                      {"width", choice.width},
                      {"dropout", choice.dropout},
                      {"learning_rate", choice.learning_rate},
                      {"losses", trial.losses},
                      {"seconds", trial.seconds}});
  }
  return {{"seconds", result.seconds}, {"best", result.best.text()}, {"loss", result.loss()}, {"trials", trials}};
}

}  // namespace penstock::cli
