#pragma once

#include <string>

#include "penstock/train/search.h"
#include "terminal/describe.h"
#include "terminal/progress_line.h"

namespace penstock::cli {

/// The search of a run as it goes: a line for every training as it ends, and on a terminal a bar below them.
class SearchReport {
 public:
  /// Says that a search of `budget` seconds begins.
  SearchReport(double budget, bool quiet);

  /// Reports to this object, which must outlive the search.
  SearchCallbacks callbacks();

 private:
  void progress(const SearchChoice& choice, double seconds);
  void trial(const SearchTrial& trial, Index number, bool best);

  double budget_;
  bool quiet_;
  ProgressLine line_;
};

/// "31 trainings in 5:00; gru of width 64, ...: loss 0.41 on the rest of the training part, 0.46 as it began"
std::string describe_search(const SearchResult& result);
Json search_json(const SearchResult& result);

}  // namespace penstock::cli
