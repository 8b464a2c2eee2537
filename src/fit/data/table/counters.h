#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/types.h"

/// Columns of numbers that count or name rows, and measure nothing: an index, the seconds since a start, an identifier.
namespace penstock::data {

/// Looks at the values of one column, row by row in each series, for what makes it a counter.
class CounterSearch {
 public:
  explicit CounterSearch(std::string_view column);

  /// `series` counts from 0; a row without a value has none.
  void look(std::optional<double> value, std::size_t series);
  /// Forgets the last values, as at the start of another file: no series continues there.
  void restart() { last_.clear(); }
  /// Returns whether the column may be a counter by the values seen so far.
  bool may_be() const { return (even_ && !many_jumps(100)) || (counts_ && rises_) || (identifies_ && whole_); }
  /// "an index: 1 more in each row", "numbers its rows", "an identifier"; empty if it is none. Fewer than 20 steps show
  /// none.
  std::string what() const;

 private:
  void look_at_step(double step, double rounding);
  /// An index may lack a few rows: of whole numbers at most one step in 20 may be a jump. A meter's steps vary more
  /// often, and a slow level that is rounded to tenths is no index. Up to `few` jumps decide nothing yet.
  bool many_jumps(Index few) const { return jumps_ > few && (20 * jumps_ > steps_ || !whole_); }

  bool identifies_, counts_;                 // by its name
  bool even_ = true;                         // steps of one size, or whole multiples of it
  bool rises_ = true, whole_ = true;         // strictly, in each series; and without a fraction
  double step_ = 0.0;                        // the smallest one
  Index steps_ = 0, jumps_ = 0;              // how many were seen, and are larger than that
  std::vector<std::optional<double>> last_;  // of each series
};

}  // namespace penstock::data
