#include "verbs/train/search.h"

#include <fmt/format.h>

#include <algorithm>

#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {

SearchReport::SearchReport(double budget, bool quiet) : budget_(budget), quiet_(quiet), line_(quiet) {
  if (quiet_) return;
  say(fmt::format("search {} for a model on the training part only: its first part trains, the rest scores\n",
                  clock_time(budget_)));
  say("         cell     width  dropout  rate      loss       trained  \n");
}

SearchCallbacks SearchReport::callbacks() {
  return {.progress = [this](const auto&... now) { progress(now...); },
          .trial = [this](const auto&... ended) { trial(ended...); },
          .stop = {}};
}

void SearchReport::progress(const SearchChoice& choice, double seconds) {
  if (!line_.shown()) return;
  line_.draw_bar(seconds / budget_,
                 fmt::format(" {} left  {}", clock_time(std::max(0.0, budget_ - seconds)), choice.text()));
}

void SearchReport::trial(const SearchTrial& trial, Index number, bool best) {
  if (quiet_) return;
  line_.erase();
  const SearchChoice& choice = trial.choice;
  const std::size_t times = trial.losses.size();
  say(fmt::format("{:>6}   {:<8} {:>5}  {:<7g}  {:<8.3g}  {:<9}  {}{}\n", number + 1, choice.cell, choice.width,
                  choice.dropout, choice.learning_rate, short_number(trial.loss()),
                  times == 1 ? "once" : fmt::format("{} times", times), best ? "  the best so far" : ""));
}

std::string describe_search(const SearchResult& result) {
  Index trainings = 0;
  for (const SearchTrial& trial : result.trials) trainings += static_cast<Index>(trial.losses.size());
  return fmt::format("{} of {} in {}; best: {}: loss {} on the rest of the training part, {} with the defaults",
                     counted(trainings, "training"), counted(static_cast<Index>(result.trials.size()), "model"),
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
