#pragma once

#include <optional>
#include <vector>

#include "data/series/series_table.h"
#include "forecast/linear/covariates.h"
#include "penstock/data/dataset.h"
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
FittedColumn fit_column(const SeriesTable& series, const CsvTable& table, std::size_t position, SeriesPart part,
                        bool logarithm);

/// What a raw value of 0 is in a column, for values to grow from; none of logarithms, and of groups each has its own.
std::optional<double> zero_of(const Column& column, std::size_t groups);

/// How the past of a target is forecast from, and whether effects of what is known in advance are taken away before.
struct LinearPlan {
  training::LinearChoice choice;
  std::optional<training::EffectsChoice> effects;
};

/// How the targets that are inputs too are forecast by straight regressions, and by which of their values.
struct SeriesPlan {
  std::vector<bool> logarithms;                   // by position in the header
  std::vector<std::optional<LinearPlan>> linear;  // by target; none: its past is not read
  Index season = 0;                               // of the first of those; 0: there are none
};

/// `origin`: a model's description that decides about logarithms; null: none.
SeriesPlan plan_series(const CsvTable& table, const SeriesTable& series, const SeriesOptions& options,
                       const SeriesColumns& columns, const DataDescription* origin);

/// The same columns by logarithms and of the same season as in `first`, with linear forecasts chosen anew by all rows.
SeriesPlan plan_again(const SeriesPlan& first, const CsvTable& table, const SeriesTable& series,
                      const SeriesOptions& options, const SeriesColumns& columns);

/// Targets and inputs of a series, normalised.
struct TargetRows {
  std::span<const float> values;  ///< [rows, targets]
  Index targets = 1, horizon = 1;
  const std::vector<training::Segment>& segments;
  std::span<const float> features = {};  ///< [rows, inputs]
  Index inputs = 1;
  std::vector<std::size_t> known = {};            ///< Inputs that are the values of columns known in advance.
  std::vector<std::optional<double>> zeros = {};  ///< [targets]: what a raw value of 0 is, if that is the same in all.
};

/// The linear forecast of a plan, fitted to the rows of each segment before `ends`.
Autoregression fit_linear(const TargetRows& rows, const SeriesPlan& plan, const std::vector<Index>& ends);

/// Errors of fits to some beginnings of the training part, each up to the end of the next. `is_known` (row, target)
/// says which count. The fits take so many threads.
training::RowErrors past_errors(const TargetRows& rows, const SeriesPlan& plan,
                                const std::function<bool(Index, Index)>& is_known, int threads);

}  // namespace penstock::data
