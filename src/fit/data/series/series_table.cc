#include "data/series/series_table.h"

#include <algorithm>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/plural.h"
#include "base/quote.h"
#include "data/data_file.h"
#include "data/dataset.h"
#include "data/model_to_continue.h"
#include "data/table/fill_missing.h"

namespace penstock::data {
namespace {

using training::Segment;

/// How many rows of a series are trained on and held out.
struct Split {
  Index training = 0, held_out = 0;
};

Split split_rows(Index rows, const SeriesOptions& options) {
  Index held = held_out(rows, options.validation_fraction);
  // A short series holds out at least one whole forecast, as long as training keeps more than that.
  if (held > 0 && rows > 2 * options.horizon) held = std::max(held, options.horizon);
  return {rows - held, held};
}

bool is_enough(const Split& split, const SeriesOptions& options) {
  return split.training >= options.horizon + 1 && (split.held_out == 0 || split.held_out >= options.horizon);
}

/// Where the rows of the files belong: to a segment for each file and group.
class RowSorter {
 public:
  /// Files come one after the other.
  void add(std::size_t file, const std::string& group) {
    const auto [found, first] = numbers_.try_emplace(group, static_cast<Index>(groups_.size()));
    const Index number = found->second;
    if (first) groups_.push_back(group);
    if (first) latest_.emplace_back();
    if (first || latest_[number].file != file) {
      latest_[number] = {file, rows_.size()};
      rows_.push_back({{}, number});
    }
    rows_[latest_[number].segment].rows.push_back(count_++);
  }

  /// The segments of a group, in the order of the files, behind those of the group before.
  std::vector<RowRun> take() {
    std::ranges::stable_sort(rows_, {}, &RowRun::group);
    return std::move(rows_);
  }
  const std::vector<std::string>& groups() const { return groups_; }
  Index count() const { return count_; }

 private:
  struct Latest {
    std::size_t file = 0, segment = 0;
  };
  std::unordered_map<std::string, Index> numbers_;
  std::vector<Latest> latest_;  // segment of each group
  std::vector<RowRun> rows_;
  std::vector<std::string> groups_;
  Index count_ = 0;
};

template <typename T>
std::vector<T> in_order(const std::vector<T>& values, const std::vector<Index>& order) {
  std::vector<T> result;
  if (values.empty()) return result;
  result.reserve(order.size());
  for (const Index row : order) result.push_back(values[row]);
  return result;
}

/// Leaves these rows in this order.
void reorder(TableValues& values, std::optional<Calendar>& calendar, const std::vector<Index>& order) {
  for (auto& column : values.columns) column = in_order(column, order);
  for (auto& filled : values.filled) {
    if (!filled.empty()) filled.resize(values.lines.size(), 0);
    filled = in_order(filled, order);
    if (std::ranges::find(filled, 1) == filled.end()) filled.clear();
  }
  values.lines = in_order(values.lines, order);
  values.files = in_order(values.files, order);
  if (calendar) calendar->seconds = in_order(calendar->seconds, order);
}

class SeriesReader {
 public:
  SeriesReader(OpenTable& table, const SeriesColumns& columns, const std::vector<std::size_t>& used,
               const SeriesOptions& options, const RowDates* dates)
      : table_(table), columns_(columns), options_(options), dates_(dates), path_(table.header().source()) {
    require_about(options.group.empty() || !options.group_by_file, "group", ": files name the series, not column {}",
                  in_quotes(options.group));
    grouped_ = options.group_by_file || !options.group.empty();
    if (options.group_by_file) name_files();
    if (options.group.empty()) return;
    group_ = table.column(options.group, "group");
    require_about(std::ranges::find(used, *group_) == used.end(), "group",
                  ": column {} cannot be read or forecast as well", in_quotes(options.group));
  }

  SeriesTable read(const std::vector<std::size_t>& used) {
    if (options_.undated == Undated::drop) leave_out_undated();
    ValueReader reader(table_, used, options_.missing);
    RowSorter sorter;
    for (auto rows = table_.rows(); rows.next();) {
      const bool may_come = lacks_targets(rows);
      check_known(rows);
      to_come_.push_back(may_come);
      reader.add(rows, may_come);
      sorter.add(rows.file(), group_of(rows));
    }
    TableValues values = reader.take();
    rows_in_files_ = values.rows();
    std::vector<std::string> names;
    for (const std::size_t column : used) names.push_back(table_.header().names()[column]);
    refuse_empty_columns(values, names);
    SeriesTable result;
    if (grouped_) result.groups = sorter.groups();
    if (!undated_.empty()) result.findings.push_back(undated_);
    std::vector<RowRun> runs = sorter.take();
    read_dates(runs, values, result);
    split(sorter, runs, values, result);
    reorder(values, result.calendar, order_);
    fill(std::move(values), used, names, result);
    return result;
  }

 private:
  /// A model that is trained further may know dates only to say when rows were.
  bool reads_dates() const {
    const bool known = dates_ != nullptr && table_.header().find(dates_->column).has_value();
    return options_.calendar.read || options_.irregular != Irregular::ignore || known;
  }

  /// Before anything else of these rows is looked at: a line "Total" may lack more than a date.
  void leave_out_undated() {
    require_about(reads_dates() || dates_ != nullptr, "undated",
                  ": rows can be dropped by their dates only if dates are read, and 'calendar' turns that off");
    if (!reads_dates()) return;
    ValueReader places(table_, {}, options_.missing);
    RowSorter sorter;
    for (auto rows = table_.rows(); rows.next();) {
      places.add(rows);
      const bool by_column = group_.has_value();
      sorter.add(rows.file(), by_column ? rows.fields()[*group_].text() : group_of(rows));
    }
    const auto calendar = find_calendar(table_, options_, columns_.inputs, sorter.take(), places.take());
    require_about(calendar || dates_ != nullptr, "undated", ": {} has no column of dates among {}", path_,
                  table_.header().list());
    if (!calendar || calendar->undated.empty()) return;
    table_.leave_out(calendar->undated);
    undated_ =
        fmt::format("{} without a readable date in {} left out, the first {}", counted(calendar->undated.size(), "row"),
                    table_.header().names()[calendar->column], calendar->first_undated);
  }

  void name_files() {
    for (const std::string& path : table_.sources()) {
      const std::string name = io::data_name(path);
      const auto same = std::ranges::find(files_, name);
      if (same != files_.end()) {
        fail(ErrorCode::bad_input, "{} and {} are both called {}: the series of two files need different names",
             table_.sources()[static_cast<std::size_t>(same - files_.begin())], path, in_quotes(name));
      }
      files_.push_back(name);
    }
  }

  std::string group_of(const TableRows& rows) const {
    if (options_.group_by_file) return files_[rows.file()];
    return group_ ? rows.header().label(rows.fields(), *group_) : std::string();
  }

  void read_dates(std::vector<RowRun>& runs, TableValues& values, SeriesTable& result) {
    result.missing = options_.missing;
    if (!reads_dates()) return;
    result.calendar = find_calendar(table_, options_, columns_.inputs, runs, values);
    if (!result.calendar) return;
    RowDates& dates = result.calendar->dates;
    if (dates_ != nullptr) check_step(dates, *dates_, path_);
    // A model that does not ask how far rows are apart has no usual time between them.
    if (dates_ != nullptr && dates_->irregular != Irregular::ignore) {
      dates = {dates.irregular, dates.column, dates.form, dates_->step, dates_->working_days};
    }
    if (dates.irregular != Irregular::fill || result.calendar->missing == 0.0) return;
    for (RowRun& run : runs) put_in_missing(run.rows, values, *result.calendar);
    // Values that are missing by themselves are still refused.
    if (result.missing == Missing::refuse) result.missing = Missing::mask;
  }

  /// Rows that a regular calendar has between those of a run.
  void put_in_missing(std::vector<Index>& run, TableValues& values, Calendar& calendar) {
    std::vector<Index> all;
    for (std::size_t i = 0; i < run.size(); ++i) {
      const Index row = run[i];
      if (i > 0) {
        for (const double date : calendar.dates.between(calendar.seconds[run[i - 1]], calendar.seconds[row])) {
          all.push_back(values.rows());
          values.add_missing_row(row);
          calendar.seconds.push_back(date);
          to_come_.push_back(to_come_[row]);
        }
      }
      all.push_back(row);
    }
    run = std::move(all);
  }

  /// Returns whether a row may have only values that are known in advance.
  bool lacks_targets(const TableRows& rows) const {
    return !columns_.known.empty() &&
           std::ranges::all_of(columns_.targets, [&](std::size_t c) { return rows.fields()[c].is_missing(); });
  }

  /// Checks that values known in advance are there in all rows.
  void check_known(const TableRows& rows) const {
    for (const std::size_t column : columns_.known) {
      const Field& field = rows.fields()[column];
      if (!field.is_missing() || options_.missing != Missing::refuse) continue;
      fail(ErrorCode::bad_input, "{}:{}:{}: column {}: the value is missing, but this column must be known in advance",
           rows.header().source(), field.line, field.column, in_quotes(rows.header().names()[column]));
    }
  }

  /// Rows at the end of a series that say only what is known in advance. Throws for one in the middle that lacks its
  /// targets, if such rows are refused.
  Index count_to_come(const std::vector<Index>& rows, const TableValues& values) const {
    const auto lacks = [&](Index row) { return to_come_[row]; };
    Index count = 0;
    while (count < static_cast<Index>(rows.size()) && lacks(rows[rows.size() - 1 - static_cast<std::size_t>(count)])) {
      ++count;
    }
    const auto known = std::span(rows).first(rows.size() - static_cast<std::size_t>(count));
    const auto gap = std::ranges::find_if(known, lacks);
    if (gap != known.end() && options_.missing == Missing::refuse && *gap < rows_in_files_) {
      fail_with(ErrorCode::bad_input, {the_option("missing"), " (carry, interpolate or mask) accepts such rows"},
                "{}:{}: no target has a value, but rows with values follow", values.source(*gap), values.lines[*gap]);
    }
    return count;
  }

  void split(const RowSorter& sorter, const std::vector<RowRun>& all, const TableValues& values, SeriesTable& result) {
    if (all.size() == 1 && !grouped_) {
      const std::vector<Index>& rows = all.front().rows;
      check_only(static_cast<Index>(rows.size()) - count_to_come(rows, values));
    }
    Index longest = 0, longest_training = 0;
    for (const RowRun& each : all) {
      const Index to_come = count_to_come(each.rows, values);
      const auto rows = static_cast<Index>(each.rows.size()) - to_come;
      longest = std::max(longest, rows);
      Split split = split_rows(rows, options_);
      if (!is_enough(split, options_)) split = {rows, 0};  // no row to spare
      if (!is_enough(split, options_)) {
        left_out_.push_back(fmt::format("{} ({})", name_of(each, result), rows));
        continue;
      }
      if (split.held_out == 0 && options_.validation_fraction > 0.0) ++not_held_out_;
      const auto first = static_cast<Index>(order_.size());
      result.segments.push_back({first, first + split.training, first + rows, grouped_ ? each.group : -1, to_come});
      most_to_come_ = std::max(most_to_come_, to_come);
      order_.insert(order_.end(), each.rows.begin(), each.rows.end());
      longest_training = std::max(longest_training, split.training);
    }
    if (result.segments.empty()) refuse_short(sorter, longest);
    const auto holds_out = [](const Segment& segment) { return segment.held_out() > 0; };
    if (options_.validation_fraction > 0.0 && std::ranges::none_of(result.segments, holds_out)) {
      fail(ErrorCode::bad_input, "{}: no series is long enough for a hold-out set of {} rows: the longest has {}",
           path_, options_.horizon, longest);
    }
    if (options_.season > 1 && longest_training < 2 * options_.season) {
      fail(ErrorCode::bad_input, "{}: a season of {} rows cannot be learnt from {} training rows: it needs {} or more",
           path_, options_.season, longest_training, 2 * options_.season);
    }
    if (grouped_) drop_empty_groups(result);
    describe(result);
  }

  void check_only(Index rows) const {
    const Split split = split_rows(rows, options_);
    if (is_enough(split, options_)) return;
    fail(ErrorCode::bad_input,
         "{}: {} {} too few for horizon {}: training gets {} and needs {}, validation gets {} and needs {}", path_,
         counted(rows, "row"), rows == 1 ? "is" : "are", options_.horizon, split.training, options_.horizon + 1,
         split.held_out, options_.validation_fraction > 0.0 ? options_.horizon : 0);
  }

  [[noreturn]] void refuse_short(const RowSorter& sorter, Index longest) const {
    if (longest == 1 && group_) {
      fail(ErrorCode::bad_input,
           "{}: column {} has another value in each of {} rows: it looks like an index, not like the name of a series",
           path_, in_quotes(options_.group), sorter.count());
    }
    fail(ErrorCode::bad_input, "{}: horizon {} takes {} of a series, but the longest of {} has {}", path_,
         options_.horizon, counted(options_.horizon + 1, "row"),
         sorter.groups().size() > 1 ? "the groups" : "the files", longest);
  }

  std::string name_of(const RowRun& rows, const SeriesTable& result) const {
    return grouped_ ? in_quotes(result.groups[rows.group]) : "a file";
  }

  /// Groups of which nothing is left.
  static void drop_empty_groups(SeriesTable& result) {
    std::vector<Index> numbers(result.groups.size(), -1);
    std::vector<std::string> kept;
    for (Segment& segment : result.segments) {
      Index& number = numbers[segment.group];
      if (number < 0) {
        number = static_cast<Index>(kept.size());
        kept.push_back(result.groups[segment.group]);
      }
      segment.group = number;
    }
    result.groups = std::move(kept);
  }

  void describe(SeriesTable& result) const {
    const auto [least, most] = std::ranges::minmax(result.segments, {}, &Segment::rows);
    if (grouped_) {
      const std::string by = group_ ? "named by " + options_.group : "named after their files";
      result.findings.push_back(fmt::format("{} series {}, of {}{}", result.groups.size(), by,
                                            least.rows() == most.rows() ? "" : fmt::format("{} to ", least.rows()),
                                            counted(most.rows(), "row")));
    }
    if (not_held_out_ > 0) {
      result.findings.push_back(fmt::format(
          "{} of {} series {} too short for a hold-out set and {} used for training as a whole", not_held_out_,
          result.segments.size(), not_held_out_ == 1 ? "is" : "are", not_held_out_ == 1 ? "is" : "are"));
    }
    if (most_to_come_ > 0) {
      result.findings.push_back(
          fmt::format("{} at the end, of which only known columns are read", counted(most_to_come_, "row")));
    }
    if (left_out_.empty()) return;
    result.findings.push_back(fmt::format("{} series of fewer than {} rows left out: {}", left_out_.size(),
                                          options_.horizon + 1, list_of(left_out_)));
  }

  void fill(TableValues values, const std::vector<std::size_t>& used, const std::vector<std::string>& names,
            SeriesTable& result) const {
    std::vector<Index> begins;
    for (const Segment& segment : result.segments) begins.push_back(segment.first);
    fill_missing(values, begins, result.missing, names);
    forget_rows_to_come(values, result.segments);
    auto columns = std::exchange(values.columns, {});
    auto filled = std::exchange(values.filled, {});
    values.columns.resize(table_.header().names().size());
    values.filled.resize(values.columns.size());
    for (std::size_t i = 0; i < used.size(); ++i) {
      values.columns[used[i]] = std::move(columns[i]);
      values.filled[used[i]] = std::move(filled[i]);
    }
    result.values = std::move(values);
  }

  /// Marks the unknown values of rows to come as not missing.
  static void forget_rows_to_come(TableValues& values, const std::vector<Segment>& segments) {
    for (auto& filled : values.filled) {
      if (filled.empty()) continue;
      for (const Segment& segment : segments) std::fill_n(filled.begin() + segment.end, segment.to_come, 0);
    }
  }

  OpenTable& table_;
  const SeriesColumns& columns_;
  const SeriesOptions& options_;
  const RowDates* dates_;
  const std::string& path_;
  std::vector<Index> order_;        // of each row, its number in the files
  std::string undated_;             // what is said of rows that were left out
  Index rows_in_files_ = 0;         // those behind them were put in
  bool grouped_ = false;            // by a column or by files
  std::vector<std::string> files_;  // names
  std::optional<std::size_t> group_;
  std::vector<std::string> left_out_;  // names, with their numbers of rows
  Index not_held_out_ = 0, most_to_come_ = 0;
  std::vector<bool> to_come_;  // of each row of the files: it lacks all targets
};

}  // namespace

SeriesTable read_series(OpenTable& table, const SeriesColumns& columns, const SeriesOptions& options,
                        const RowDates* dates) {
  std::vector<std::size_t> used = columns.inputs;
  used.insert(used.end(), columns.targets.begin(), columns.targets.end());
  std::ranges::sort(used);
  used.erase(std::unique(used.begin(), used.end()), used.end());
  return SeriesReader(table, columns, used, options, dates).read(used);
}

}  // namespace penstock::data
