#pragma once

#include <deque>
#include <limits>
#include <string>
#include <unordered_set>

#include "data/table/csv.h"

namespace penstock::data {

/// The names of labelled sequences as they begin, of which none may come back: a name that does belongs to rows that
/// stand apart, as where many sequences are sorted by time.
class SequenceNames {
 public:
  /// Remembers the latest `most`, for a stream without end.
  explicit SequenceNames(std::size_t most = std::numeric_limits<std::size_t>::max()) : most_(most) {}

  /// Throws Error(bad_input) for a name that was there, with its place and the column that it stands in.
  void begin(const Field& name, const TableHeader& header, std::size_t column);
  void clear();

 private:
  std::size_t most_;
  std::unordered_set<std::string> names_;
  std::deque<std::string> order_;  // of `names_`, where they are limited
};

}  // namespace penstock::data
