#pragma once

#include <optional>
#include <vector>

#include "data/series/series_rows.h"
#include "data/series/series_table.h"
#include "penstock/data/series.h"
#include "penstock/data_description.h"

/// How the columns of a series are scaled, and how those that are forecast from their own past are.
namespace penstock::data {

/// Which rows of each segment are looked at.
enum class SeriesPart { training, all };

/// A column of the table, or its logarithms, segment by segment.
std::vector<std::vector<double>> values_of(const SeriesTable& series, std::size_t position, SeriesPart part,
                                           bool logarithm);

/// Mean and scale of a column: its own, or one for each group, in which case those of the column are 0 and 1.
struct FittedColumn {
  Column column;
  std::vector<Scaling> groups;
};
FittedColumn fit_series_column(const SeriesTable& series, const OpenTable& table, std::size_t position, SeriesPart part,
                               bool logarithm);

/// Returns the normalised value of a raw 0 in a column, for values to grow from; none for logarithms, and for groups,
/// since each has its own.
std::optional<double> zero_of(const Column& column, std::size_t groups);

/// Returns whether a column has no negative value and at least 1 % of its values, and at least 3 of them, are at most 5
/// % of the mean of their series. A quantity that comes so near 0 so often without passing it has its limit there.
bool ends_at_zero(const SeriesTable& series, std::size_t position);

/// How the targets that are inputs too are forecast by straight regressions, and by which of their values.
struct SeriesPlan {
  std::vector<bool> logarithms;  // by position in the header
  training::LinearPlans linear;  // empty without a linear forecast
  Index season = 0;              // of the first of those; 0: there are none
};

/// `origin`: a model's description that decides about logarithms; null: none.
SeriesPlan plan_series(const OpenTable& table, const SeriesTable& series, const SeriesOptions& options,
                       const SeriesColumns& columns, const DataDescription* origin);

/// The linear forecasts of `first`, chosen anew by a part of these segments, of the same columns by logarithms.
/// `season`: 0 if it is to be found; empty: that of `first`.
training::LinearPlans plan_again(const SeriesPlan& first, const OpenTable& table, const SeriesTable& series,
                                 const SeriesOptions& options, const SeriesColumns& columns, SeriesPart part,
                                 std::optional<Index> season = std::nullopt);

}  // namespace penstock::data
