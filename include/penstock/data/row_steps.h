#pragma once

#include <map>
#include <string>

#include "penstock/description/row_dates.h"

namespace penstock {

/// "a day", "15 minutes", "a month"; months and years are as long as they are.
std::string describe_step(double seconds);

/// Returns whether two steps in seconds differ by no more than months do.
bool alike_steps(double step, double other);

/// Watches how far the rows that a model is given are apart. Without a word, one that learnt a row a day would take a
/// row an hour for the next day.
class RowSteps {
 public:
  explicit RowSteps(const RowDates& usual) : usual_(usual) {}

  /// Takes the dates of two rows that follow each other in a series, in seconds since the start of 1970. Returns what
  /// is wrong, as "rows are an hour apart, and the model learnt rows a day apart: ..."; nothing while all is right or
  /// the usual step is not known.
  std::string see(double before, double after);

 private:
  std::string mistake() const;

  struct Other {
    Index count = 0;
    double step = 0.0;  // the first of them
  };

  RowDates usual_;
  Index seen_ = 0, usual_seen_ = 0;
  std::map<long, Other> others_;  // by the logarithm, so that months are one kind
};

}  // namespace penstock
