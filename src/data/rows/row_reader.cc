#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/alive.h"
#include "base/check.h"
#include "base/quote.h"
#include "data/data_file.h"
#include "data/normalise.h"
#include "data/rows/row_order.h"
#include "data/rows/stream_opening.h"
#include "data/rows/stream_series.h"
#include "data/table/categories.h"
#include "data/table/csv.h"
#include "data/table/dates.h"
#include "data/table/sequence_names.h"
#include "penstock/data/row_reader.h"

namespace penstock {

using data::StreamOpening;
using data::StreamSeries;

struct RowReader::Impl {
  Impl(const DataDescription& description, const std::string& first, const std::string& source, const RowFormat& format)
      : data(description),
        opening(data::open_stream(description, first, source, format)),
        inputs(description.inputs),
        target_values(description.targets.size()),
        missing(format.missing.value_or(description.table.missing)),
        undated_rows(format.undated.value_or(description.series.undated)),
        order(description.series.row_dates),
        replace_bad(format.replace_bad),
        sequence_names(format.replace_bad ? most_names : std::numeric_limits<std::size_t>::max()),
        line(format.first_line - (format.header.value_or(description.table.header) ? 0 : 1)),
        kinds(inputs.size(), data::ColumnKind::unknown),
        trained_series(data) {
    if (data.series.group_column.empty()) series = &add(Group(), true);
    for (const Group& group : data.series.groups) add(group, true);
    for (const Column& target : data.targets) target_inputs.push_back(data.input_of(target.name));
    if (!format.sequence_column.empty()) sequence_position = opening.header.find(format.sequence_column);
    if (data.series.groups_are_files) start_series(format.series.empty() ? io::data_name(source) : format.series);
  }

  void start_series(const std::string& name) {
    const auto found = all.find(name);
    series = found != all.end() ? &found->second : &add({.name = name, .inputs = {}, .targets = {}}, false);
    if (series->group.inputs.empty()) series->group.inputs.resize(inputs.size());
  }

  void find_dates() {
    for (std::size_t i = 0; i < inputs.size() && !dated_by; ++i) {
      if (inputs[i].reads_dates()) dated_by = {positions[i], inputs[i].dates};
    }
    if (data.series.row_dates.column.empty()) return;
    const auto is_read = [&](const Column& input) {
      return input.reads_dates() && input.name == data.series.row_dates.column;
    };
    // An input that reads the dates says when rows were; nobody needs to parse them twice.
    if (data.series.row_dates.irregular == Irregular::ignore && std::ranges::any_of(inputs, is_read)) return;
    date_position = opening.header.find(data.series.row_dates.column);
    if (date_position || data.series.row_dates.irregular == Irregular::ignore) return;
    fail(ErrorCode::bad_input, "{}:1:1: column {} says when a row was, but the header has only {}", source(),
         in_quotes(data.series.row_dates.column), opening.header.list());
  }

  /// Returns whether to leave out the row that was read, because its date cannot be read. A column that only says when
  /// rows were need not hold dates as in training. Once it does, a row without a date, such as a line "Total", is no
  /// row: an error, unless such rows are tolerated.
  bool is_left_out() {
    const bool needed = dated_by || data.series.row_dates.irregular != Irregular::ignore;
    if (!date_position && !dated_by) return false;
    const std::size_t position = date_position.value_or(dated_by ? dated_by->position : 0);
    const DateForm form = date_position ? data.series.row_dates.form : dated_by->form;
    const bool is_date = data::read_date(read[position].text, form, opening.decimal).has_value();
    holds_dates = holds_dates || is_date;
    if (is_date || (!needed && !holds_dates)) return false;
    if (undated_rows == Undated::refuse && (needed || replace_bad)) return false;  // what reads the date says so
    const data::CsvField& field = read[position];
    const std::string& column = opening.header.names()[position];
    if (undated_rows == Undated::refuse) (void)date(field, column, form);  // which throws
    if (undated++ == 0) {
      first_undated = fmt::format("{}:{}:{}: column {}: {} is no date", source(), field.line, field.column,
                                  in_quotes(column), in_quotes(field.text));
    }
    return left_out = true;
  }

  void find_known(const DataDescription& description) {
    for (const Column& input : inputs) known_ahead.push_back(description.is_known_ahead(input.name));
    if (!description.reads_ahead()) return;
    for (const Column& target : description.targets) {
      const auto position = opening.header.find(target.name);
      if (position) target_positions.push_back(*position);
    }
    if (target_positions.size() < description.targets.size()) target_positions.clear();
  }

  /// Gives categories columns of their own.
  void find_categories() {
    std::vector<std::size_t> places;
    for (data::CategoryColumn& column : data::category_columns(data, opening.header)) {
      std::ranges::copy(categories.add(opening.header, std::move(column)), std::back_inserter(places));
    }
    std::size_t next = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].feature == Feature::category && inputs[i].ahead == 0) positions[i] = places[next++];
    }
  }

  /// Restarts where the row that was read is of another sequence than the row before. One that does not say it, if that
  /// is to be borne, is of the same.
  void find_sequence() {
    if (!sequence_position) return;
    std::string& name = read[*sequence_position].text;
    if (name.empty() && replace_bad && sequence) name = *sequence;
    starts_sequence = sequence && *sequence != name;
    if (!sequence || starts_sequence || restarted) begin_sequence();
    restarted = false;
    if (starts_sequence) restart();
  }

  void begin_sequence() {
    try {
      sequence_names.begin(read[*sequence_position], opening.header, *sequence_position);
    } catch (const Error& error) {
      if (!replace_bad) throw;
      if (first_returning.empty()) first_returning = error.what();
    }
  }

  void restart() {
    for (auto& [name, state] : all) state.restart();
  }

  StreamSeries& add(const Group& group, bool trained) {
    return all.try_emplace(group.name, data, group, trained).first->second;
  }

  /// Finds the series of the row that was read; with replacement, a row that does not say it is of that before it.
  void find_series() {
    if (!group_position) return;
    const std::string& name = read[*group_position].text;
    if (name.empty() && replace_bad && series != nullptr) {
      note(fmt::format("{}:{}: column {}: the value is missing", source(), line, in_quotes(data.series.group_column))
               .c_str());
      ++replaced;
      return;
    }
    start_series(opening.header.label(read, *group_position));
  }

  /// Finds out when the row that was read was, and what that means for it.
  void read_date() {
    missing_rows.clear();
    elapsed = 1.0;
    if (!date_position) return;
    const RowDates& dates = data.series.row_dates;
    std::optional<double> now;
    if (dates.irregular == Irregular::ignore) {
      follow(data::read_date(read[*date_position].text, dates.form, opening.decimal), *date_position);
      return;
    }
    try {
      now = date(read[*date_position], dates.column, dates.form);
      if (series->date) order.check(*series->date, *now, read[*date_position], source());
    } catch (const Error& error) {
      const bool gap = data::is_missing(read[*date_position].text);
      const bool borne = gap ? missing != Missing::refuse : replace_bad;
      if (!borne || error.code() != ErrorCode::bad_input) throw;
      note(error.what());
      const bool is_input = std::ranges::find(positions, *date_position) != positions.end();
      if (now || !is_input) ++replaced;  // otherwise the input counts it
      now.reset();
    }
    if (now && series->date) {
      order.check_step(*series->date, *now, read[*date_position], opening.header, *date_position);
      elapsed = dates.seconds_between(*series->date, *now) / dates.step;
      if (dates.irregular == Irregular::fill) fill_in(*series->date, *now);
    }
    series->date = now;
  }

  /// Looks at the date of a row, which stands at `position`, where it only says that a series is not what it should be.
  void follow(std::optional<double> now, std::size_t position) {
    if (now && series->date) {
      order.check_direction(*series->date, *now, read[position], opening.header, position);
      order.check_step(*series->date, *now, read[position], opening.header, position);
    }
    series->date = now;
  }

  /// Rows between the last one of the series and that at `now`, which the file has not.
  void fill_in(double before, double now) {
    for (const double when : data.series.row_dates.between(before, now)) {
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const Column& column = inputs[i];
        float value = series->values[i];
        if (column.ahead > 0 || (to_come && !known_ahead[i])) value = std::numeric_limits<float>::quiet_NaN();
        if (column.feature == Feature::missing) value = 1.0f;
        if (column.reads_dates()) value = static_cast<float>(column.normal(when));
        missing_rows.push_back(value);
      }
    }
  }

  const std::string& source() const { return opening.header.source(); }

  double date(const data::CsvField& field, const std::string& column, DateForm form) const {
    return data::date_in(field, column, form, opening.header, opening.decimal);
  }

  /// False for a blank line. A row whose form is wrong is an empty one if that is to be borne.
  bool parse(const std::string& text) {
    try {
      if (!data::read_line(text, opening.delimiter, source(), line, read)) return false;
      opening.header.check_width(read);
    } catch (const Error& error) {
      if (!replace_bad || error.code() != ErrorCode::bad_input) throw;
      note(error.what());
      read.assign(opening.header.names().size(), {"", line, 1});
      return true;
    }
    const std::vector<std::size_t> unknown = categories.extend(read);
    if (!unknown.empty()) note_unknown(unknown.front());
    unknown_categories += static_cast<Index>(unknown.size());
    return true;
  }

  bool is_known(const data::CsvField& field, std::size_t input) const {
    if (data::is_missing(field.text)) return false;
    double number = 0.0;
    if (data::parse_number(field.text, opening.decimal, number) == std::errc{}) {
      const auto value = data.input_of(inputs[input].name);
      return !value || !series->is_too_far(number, *value, data, trained_series);
    }
    return !replace_bad || kinds[input] == data::ColumnKind::boolean || data::parse_truth(field.text).has_value();
  }

  /// Returns whether the row has only values that are known in advance.
  bool lacks_targets() const {
    return !target_positions.empty() && std::ranges::all_of(target_positions, [&](std::size_t position) {
      return data::is_missing(read[position].text);
    });
  }

  void find_target_values() {
    for (std::size_t c = 0; c < target_inputs.size(); ++c) {
      const bool known = target_inputs[c] && given[*target_inputs[c]];
      target_values[c] = known ? raw[*target_inputs[c]] : std::numeric_limits<double>::quiet_NaN();
    }
  }

  /// The value that the model reads, or the last one in its place.
  float value(std::size_t input) {
    const Column& column = inputs[input];
    given[input] = column.ahead == 0 && (!to_come || known_ahead[input]);
    if (!given[input]) return std::numeric_limits<float>::quiet_NaN();
    const data::CsvField& field = read[positions[input]];
    if (column.feature == Feature::missing) return is_known(field, input) ? 0.0f : 1.0f;
    bool far = false;
    try {
      if (column.feature == Feature::elapsed) return static_cast<float>(column.normal(elapsed));
      if (column.reads_dates()) {
        // Sines and cosines of one date stand side by side.
        if (dated != &field) date_read = date(field, column.name, column.dates);
        dated = &field;
        return static_cast<float>(column.normal(date_read));
      }
      raw[input] = opening.header.number(read, positions[input], kinds[input]);
      far = series->is_too_far(raw[input], input, data, trained_series);
      if (far) data::refuse_far(raw[input], column, source(), line);
      return series->normalised(raw[input], input, inputs[input], source(), line);
    } catch (const Error& error) {
      const bool gap = far || data::is_missing(read[positions[input]].text);
      const bool borne = gap ? missing != Missing::refuse : replace_bad;
      if (!borne || error.code() != ErrorCode::bad_input) throw;
      note(error.what());
      given[input] = false;
      // A field of dates may make several inputs.
      const auto first = std::ranges::find(positions, positions[input]) - positions.begin();
      if (first == static_cast<std::ptrdiff_t>(input)) ++replaced;
      return series->values[input];
    }
  }

  void note_unknown(std::size_t column) {
    if (!first_unknown.empty()) return;
    const data::CsvField& field = read[column];
    first_unknown = fmt::format("{}:{}:{}: column {}: {}", source(), field.line, field.column,
                                in_quotes(opening.header.names()[column]), in_quotes(field.text));
  }

  void note(const char* message) {
    if (first_replaced.empty()) first_replaced = message;
  }

  DataDescription data;
  StreamOpening opening;
  std::vector<Column> inputs;
  std::vector<double> target_values;
  std::vector<bool> given;                                // of each input: the last row had its value ...
  std::vector<double> raw;                                // ... which, of a number, is this
  std::vector<std::optional<std::size_t>> target_inputs;  // that are the values of the targets
  Missing missing;
  Undated undated_rows;
  struct Dated {
    std::size_t position;
    DateForm form;
  };
  std::optional<Dated> dated_by;  // the column of which inputs are dates
  bool holds_dates = false;       // that column, or that of `row_dates`, as far as it was read
  data::RowOrder order;
  bool left_out = false;  // the row read last
  Index undated = 0;
  std::string first_undated;
  bool replace_bad;
  static constexpr std::size_t most_names = 4096;  // of sequences that a stream may hold side by side
  data::SequenceNames sequence_names;
  std::string first_returning;         // sequence
  std::vector<std::size_t> positions;  // of the inputs in the header
  Index line;                          // the one read last
  std::vector<data::CsvField> read;    // as it comes in ...
  std::vector<data::CsvField> fields;  // ... and once it was found to be sound
  std::vector<data::ColumnKind> kinds;
  std::vector<bool> known_ahead;              // of each input: so is its column
  std::vector<std::size_t> target_positions;  // in the header, of a model that reads ahead, if they are all there
  bool to_come = false;                       // of the row read last
  std::optional<std::size_t> group_position, date_position, sequence_position;
  std::optional<std::string> sequence;  // of the row read last
  bool starts_sequence = false, restarted = false;
  double elapsed = 1.0;             // since the row before, in units of the usual time
  std::vector<float> missing_rows;  // [rows, I]
  data::TrainedSeries trained_series;
  std::unordered_map<std::string, StreamSeries> all;  // by name
  StreamSeries* series = nullptr;                     // of the row read last
  std::vector<float> row;
  const data::CsvField* dated = nullptr;  // the field that `date_read` is of
  double date_read = 0.0;
  Index replaced = 0;
  std::string first_replaced;
  data::CategoryFields categories;
  Index unknown_categories = 0;
  std::string first_unknown;
};

RowReader::RowReader(const DataDescription& description, const std::string& first, std::string source,
                     const RowFormat& format)
    : impl_(new Impl(description, first, source, format)) {
  require(description.vocabulary == 0, "this model reads tokens, not rows of a CSV file");
  for (const auto& input : impl_->inputs) {
    const auto position = impl_->opening.header.find(input.name);
    if (!position) {
      fail(ErrorCode::bad_input, "{}:1:1: the model reads a column {}, but the header has only {}", source,
           in_quotes(input.name), impl_->opening.header.list());
    }
    impl_->positions.push_back(*position);
  }
  impl_->find_categories();
  impl_->row.resize(impl_->inputs.size());
  impl_->given.resize(impl_->inputs.size());
  impl_->raw.resize(impl_->inputs.size());
  impl_->find_known(description);
  impl_->find_dates();
  if (description.series.group_column.empty() || description.series.groups_are_files) return;
  impl_->group_position = impl_->opening.header.find(description.series.group_column);
  if (impl_->group_position) return;
  fail(ErrorCode::bad_input, "{}:1:1: column {} names the series of a row, but the header has only {}", source,
       in_quotes(description.series.group_column), impl_->opening.header.list());
}

RowReader::~RowReader() = default;
RowReader::RowReader(RowReader&&) noexcept = default;

RowReader::Impl& RowReader::held() const { return alive(impl_, "the reader"); }

bool RowReader::read(const std::string& line, std::span<float> features) {
  Impl& self = held();
  require(features.size() == self.inputs.size(), "features must have room for {} values, not {}", self.inputs.size(),
          features.size());
  ++self.line;
  self.left_out = false;
  if (!self.parse(line)) return false;
  self.dated = nullptr;
  if (self.is_left_out()) return false;
  self.find_series();
  self.find_sequence();
  self.to_come = self.lacks_targets();
  self.read_date();
  for (std::size_t i = 0; i < self.inputs.size(); ++i) self.row[i] = self.value(i);
  if (!self.date_position && self.dated_by) self.follow(date(), self.dated_by->position);
  self.find_target_values();
  if (!self.to_come) self.series->values = self.row;
  if (self.sequence_position) self.sequence = self.read[*self.sequence_position].text;
  std::ranges::copy(self.row, features.begin());
  std::swap(self.fields, self.read);
  return true;
}

std::span<const float> RowReader::missing_rows() const { return held().missing_rows; }
std::span<const double> RowReader::target_values() const { return held().target_values; }
std::optional<double> RowReader::date() const {
  if (held().date_position) return held().series->date;
  return held().dated != nullptr ? std::optional(held().date_read) : std::nullopt;
}
bool RowReader::starts_sequence() const { return held().starts_sequence; }
void RowReader::restart() {
  held().restart();
  held().sequence_names.clear();
  held().restarted = true;
}
const std::string& RowReader::first_returning_sequence() const { return held().first_returning; }

const Group& RowReader::group() const {
  const bool grouped = held().group_position || held().data.series.groups_are_files;
  require(held().series != nullptr && grouped, "no row of a group has been read");
  return held().series->group;
}

bool RowReader::knows_group() const { return held().series == nullptr || held().series->settled; }

void RowReader::add_group(const Group& group) {
  const DataDescription& data = held().data;
  require(group.inputs.size() == data.inputs.size() && group.targets.size() == data.targets.size(),
          "group must have a scaling of each column");
  held().add(group, true);
}

const Group& RowReader::settle_group(const std::string& name, std::span<float> features, Index count) {
  Impl& self = held();
  const auto found = self.all.find(name);
  require(found != self.all.end(), "name: no row of {} has been read", in_quotes(name));
  found->second.settle(self.data, self.trained_series, features, count, self.source());
  return found->second.group;
}

std::map<std::string, RowReader::LastRow> RowReader::last_rows() const {
  std::map<std::string, LastRow> rows;
  for (const auto& [name, series] : held().all) {
    if (series.settled) rows[name] = {.values = series.values, .date = series.date};
  }
  return rows;
}

void RowReader::set_last_rows(const std::map<std::string, LastRow>& rows) {
  for (const auto& [name, row] : rows) {
    const std::size_t size = held().inputs.size();
    require(row.values.size() == size, "rows: the last one must have {} values, not {}", size, row.values.size());
    const auto found = held().all.find(name);
    if (found == held().all.end()) continue;
    found->second.values = row.values;
    found->second.date = row.date;
  }
}

std::optional<std::size_t> RowReader::column(const std::string& name) const { return held().opening.header.find(name); }

std::string_view RowReader::text(std::size_t column) const {
  require(column < held().fields.size(), "column must be below {}, not {}", held().fields.size(), column);
  return held().fields[column].text;
}

bool RowReader::is_to_come() const { return held().to_come; }

std::optional<double> RowReader::number(std::size_t column) const {
  double value = 0.0;
  const std::string_view field = text(column);
  if (data::is_missing(field)) return std::nullopt;
  const bool sound = data::parse_number(field, held().opening.decimal, value) == std::errc{} && std::isfinite(value);
  return sound ? std::optional(value) : data::parse_truth(field);
}

Index RowReader::replaced() const { return held().replaced; }
const std::string& RowReader::first_replaced() const { return held().first_replaced; }
bool RowReader::left_out() const { return held().left_out; }
Index RowReader::undated() const { return held().undated; }
const std::string& RowReader::first_undated() const { return held().first_undated; }
Index RowReader::unknown_categories() const { return held().unknown_categories; }
const std::string& RowReader::first_unknown_category() const { return held().first_unknown; }

}  // namespace penstock
