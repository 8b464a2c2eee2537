#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/alive.h"
#include "base/check.h"
#include "base/quote.h"
#include "data/column_scaling.h"
#include "data/data_file.h"
#include "data/rows/row_order.h"
#include "data/rows/stream_columns.h"
#include "data/rows/stream_opening.h"
#include "data/rows/stream_series.h"
#include "data/table/csv.h"
#include "data/table/dates.h"
#include "data/table/sequence_names.h"
#include "data/table/table_columns.h"
#include "penstock/data/row_reader.h"

namespace penstock {

using data::StreamColumns;

struct RowReader::Impl {
  Impl(const DataDescription& description, data::StreamOpening opened, const RowFormat& format)
      : data(description),
        columns(data, std::move(opened), format.sequence_column),
        series(data),
        line(format.first_line - (format.header.value_or(data.table.header) ? 0 : 1)),
        target_values(data.targets.size()),
        given(data.inputs.size()),
        raw(data.inputs.size()),
        row(data.inputs.size()),
        kinds(data.inputs.size(), data::ColumnKind::unknown),
        missing(format.missing.value_or(data.table.missing)),
        undated(format.undated.value_or(data.series.undated)),
        replace_bad(format.replace_bad),
        order(data.series.row_dates),
        sequence_names(replace_bad ? most_names : std::numeric_limits<std::size_t>::max()) {
    if (data.series.groups_are_files) series.start(format.series.empty() ? io::data_name(source()) : format.series);
  }

  /// Returns whether to leave out the row that was read, because its date cannot be read. A column that only says when
  /// rows were need not hold dates as in training. Once it does, a row without a date, such as a line "Total", is no
  /// row: an error, unless such rows are tolerated.
  bool is_left_out() {
    const bool needed = columns.dated_input || data.series.row_dates.irregular != Irregular::ignore;
    if (!columns.date && !columns.dated_input) return false;
    const auto [position, form] =
        columns.date ? StreamColumns::Dated{*columns.date, data.series.row_dates.form} : *columns.dated_input;
    const data::Field& field = read[position];
    const bool is_date = field.date(form, decimal()).has_value();
    holds_dates = holds_dates || is_date;
    findings.zoned = findings.zoned || (is_date && !field.zone().empty());
    if (is_date || (!needed && !holds_dates)) return false;
    if (undated == Undated::refuse && (needed || replace_bad)) return false;              // what reads the date says so
    if (undated == Undated::refuse) (void)date(field, header().names()[position], form);  // which throws
    findings.undated.add(place_of(position, fmt::format("{} is no date", in_quotes(field.text()))));
    return left_out = true;
  }

  /// Restarts where the row that was read is of another sequence than the row before. One that does not say it, if that
  /// is to be borne, is of the same.
  void find_sequence() {
    if (!columns.sequence) return;
    data::Field& field = read[*columns.sequence];
    if (field.text().empty() && replace_bad && sequence) field.start(field.line, field.column) = *sequence;
    const std::string& name = field.text();
    starts_sequence = sequence && *sequence != name;
    if (!sequence || starts_sequence || restarted) begin_sequence();
    restarted = false;
    if (starts_sequence) series.restart();
  }

  void begin_sequence() {
    try {
      sequence_names.begin(read[*columns.sequence], header(), *columns.sequence);
    } catch (const Error& error) {
      if (!replace_bad) throw;
      findings.returning_sequences.add(error.message());
    }
  }

  /// Finds the series of the row that was read; with replacement, a row that does not say it is of that before it.
  void find_series() {
    if (!columns.group) return;
    if (read[*columns.group].text().empty() && replace_bad && series.current() != nullptr) {
      findings.replaced.add(
          fmt::format("{}:{}: column {}: the value is missing", source(), line, in_quotes(data.series.group_column)));
      return;
    }
    series.start(header().label(read, *columns.group));
  }

  /// Finds out when the row that was read was, and what that means for it.
  void read_date() {
    missing_rows.clear();
    elapsed = 1.0;
    if (!columns.date) return;
    const RowDates& dates = data.series.row_dates;
    const data::Field& field = read[*columns.date];
    std::optional<double>& before = series->date;
    if (dates.irregular == Irregular::ignore) return follow(field.date(dates.form, decimal()), *columns.date);
    std::optional<double> now;
    try {
      now = date(field, dates.column, dates.form);
      if (before) order.check(*before, *now, field, source());
    } catch (const Error& error) {
      bear(error, field.is_missing());
      const bool is_input = std::ranges::find(columns.inputs, *columns.date) != columns.inputs.end();
      if (now || !is_input) ++findings.replaced.count;  // otherwise the input counts it
      now.reset();
    }
    if (now && before) {
      note_order(*before, *now, *columns.date);
      order.check_step(*before, *now, field, header(), *columns.date);
      elapsed = dates.seconds_between(*before, *now) / dates.step;
      if (dates.irregular == Irregular::fill) fill_in(*before, *now);
    }
    before = now;
  }

  /// Notes an error that the options tolerate; throws all others again. Call it only in a handler of `error`.
  void bear(const Error& error, bool is_missing) {
    const bool borne = is_missing ? missing != Missing::refuse : replace_bad;
    if (!borne || error.code() != ErrorCode::bad_input) throw;
    findings.replaced.note(error.message());
  }

  /// Looks at the date of a row, which stands at `position`, where it only says that a series is not what it should be.
  void follow(std::optional<double> now, std::size_t position) {
    if (now && series->date) {
      note_order(*series->date, *now, position);
      order.check_direction(*series->date, *now, read[position], header(), position);
      order.check_step(*series->date, *now, read[position], header(), position);
    }
    series->date = now;
  }

  /// A model that learnt rows in order reads others without an error, and its answers are worth little there.
  void note_order(double before, double now, std::size_t position) {
    const double apart = data.series.row_dates.seconds_between(before, now);
    if (apart > 0.0) return;
    RowFinding& finding = apart < 0.0 ? findings.earlier : findings.repeated;
    finding.add(place_of(position, in_quotes(read[position].text())));
  }

  /// Rows between the last one of the series and that at `now`, which the file has not.
  void fill_in(double before, double now) {
    for (const double when : data.series.row_dates.between(before, now)) {
      for (std::size_t i = 0; i < data.inputs.size(); ++i) {
        const Column& column = data.inputs[i];
        float value = series->values[i];
        if (column.ahead > 0 || (to_come && !columns.known_ahead[i])) value = std::numeric_limits<float>::quiet_NaN();
        if (column.feature == Feature::missing) value = 1.0f;
        if (column.reads_dates()) value = static_cast<float>(column.normal(when));
        missing_rows.push_back(value);
      }
    }
  }

  const data::TableHeader& header() const { return columns.opening.header; }
  const std::string& source() const { return columns.source(); }
  char decimal() const { return columns.opening.decimal; }

  double date(const data::Field& field, const std::string& column, DateForm form) const {
    return data::date_in(field, column, form, header(), decimal());
  }

  /// Returns a message about a field of the row, with its place in front.
  std::string place_of(std::size_t position, const std::string& what) const {
    const data::Field& field = read[position];
    return fmt::format("{}:{}:{}: column {}: {}", source(), field.line, field.column,
                       in_quotes(header().names()[position]), what);
  }

  /// False for a blank line. A row whose form is wrong is an empty one if that is to be borne.
  bool parse(const std::string& text) {
    try {
      if (!data::read_line(text, columns.opening.delimiter, source(), line, read)) return false;
      header().check_width(read);
    } catch (const Error& error) {
      bear(error, false);
      read.assign(header().names().size(), {"", line, 1});
      return true;
    }
    extend();
    return true;
  }

  void begin_row(std::span<float> features) {
    require(features.size() == row.size(), "features must have room for {} values, not {}", row.size(),
            features.size());
    ++line;
    left_out = false;
  }

  /// Adds the fields of categories.
  void extend() {
    for (const std::size_t unknown : columns.categories.extend(read)) {
      findings.unknown_categories.add(place_of(unknown, in_quotes(read[unknown].text())));
    }
  }

  /// Returns a field of the last sound row.
  const data::Field& field(std::size_t column) const {
    require_argument(column < fields.size(), "column", column, "below {}", fields.size());
    return fields[column];
  }

  bool is_known(const data::Field& field, std::size_t input) const {
    if (field.is_missing()) return false;
    double number = 0.0;
    if (field.number(decimal(), number) == std::errc{}) {
      const auto value = data.input_of(data.inputs[input].name);
      return !value || !series->is_too_far(number, *value, data, series.trained());
    }
    return !replace_bad || kinds[input] == data::ColumnKind::boolean || field.truth().has_value();
  }

  /// Returns whether the row has only values that are known in advance.
  bool lacks_targets() const {
    return !columns.targets.empty() &&
           std::ranges::all_of(columns.targets, [&](std::size_t position) { return read[position].is_missing(); });
  }

  void find_target_values() {
    for (std::size_t c = 0; c < target_values.size(); ++c) {
      const auto input = columns.target_inputs[c];
      target_values[c] = input && given[*input] ? raw[*input] : std::numeric_limits<double>::quiet_NaN();
    }
  }

  /// The value that the model reads, or the last one in its place.
  float value(std::size_t input) {
    const Column& column = data.inputs[input];
    given[input] = column.ahead == 0 && (!to_come || columns.known_ahead[input]);
    if (!given[input]) return std::numeric_limits<float>::quiet_NaN();
    const std::size_t position = columns.inputs[input];
    const data::Field& field = read[position];
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
      raw[input] = header().number(read, position, kinds[input]);
      far = series->is_too_far(raw[input], input, data, series.trained());
      if (far) data::refuse_far(raw[input], column, source(), line);
      return series->normalised(raw[input], input, column, source(), line);
    } catch (const Error& error) {
      bear(error, far || field.is_missing());
      given[input] = false;
      // A field of dates may make several inputs.
      const auto first = std::ranges::find(columns.inputs, position) - columns.inputs.begin();
      if (first == static_cast<std::ptrdiff_t>(input)) ++findings.replaced.count;
      return series->values[input];
    }
  }

  /// Returns when the row was, if the model reads dates and the row has one.
  std::optional<double> date_of_row() const {
    if (columns.date) return series->date;
    return dated != nullptr ? std::optional(date_read) : std::nullopt;
  }

  /// Turns the fields that were read into features. Returns false for a row that is left out.
  bool read_fields(std::span<float> features) {
    dated = nullptr;
    if (is_left_out()) return false;
    find_series();
    find_sequence();
    to_come = lacks_targets();
    read_date();
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = value(i);
    if (!columns.date && columns.dated_input) follow(date_of_row(), columns.dated_input->position);
    find_target_values();
    if (!to_come) series->values = row;
    if (columns.sequence) sequence = read[*columns.sequence].text();
    std::ranges::copy(row, features.begin());
    std::swap(fields, read);
    return true;
  }

  static constexpr std::size_t most_names = 4096;  // of sequences that a stream may hold side by side

  const DataDescription data;
  StreamColumns columns;
  data::SeriesSet series;
  // State of the row read last:
  Index line;
  std::vector<data::Field> read;      // as it comes in ...
  std::vector<data::Field> fields;    // ... and once it was found to be sound
  std::vector<double> target_values;  // [targets]
  std::vector<bool> given;            // [I]: it had its value ...
  std::vector<double> raw;            // [I]: ... which, of a number, is this
  std::vector<float> row;             // [I]
  std::vector<float> missing_rows;    // [rows, I]
  bool left_out = false, to_come = false, starts_sequence = false;
  std::optional<std::string> sequence;
  double elapsed = 1.0;                // since the row before, in units of the usual time
  const data::Field* dated = nullptr;  // the field that `date_read` is of
  double date_read = 0.0;
  // State of all rows:
  std::vector<data::ColumnKind> kinds;  // [I]
  Missing missing;
  Undated undated;
  bool replace_bad;
  bool holds_dates = false;  // the column of dates, as far as it was read
  data::RowOrder order;
  data::SequenceNames sequence_names;
  bool restarted = false;
  RowFindings findings;
};

RowReader::RowReader(const DataDescription& description, const std::string& first, const std::string& source,
                     const RowFormat& format)
    : impl_(new Impl(description, data::open_stream(description, first, source, format), format)) {}

RowReader::RowReader(const DataDescription& description, const data::TableColumns& columns, const std::string& source,
                     const RowFormat& format)
    : impl_(new Impl(description, data::open_columns(description, columns, source), format)) {}

RowReader::~RowReader() = default;
RowReader::RowReader(RowReader&&) noexcept = default;

RowReader::Impl& RowReader::held() const { return alive(impl_, "the reader"); }

bool RowReader::read(const std::string& line, std::span<float> features) {
  held().begin_row(features);
  return held().parse(line) && held().read_fields(features);
}

bool RowReader::read(const data::TableColumns& columns, std::size_t row, std::span<float> features) {
  Impl& self = held();
  self.begin_row(features);
  require_argument(columns.read(row, self.read), "row", row, "below {}", columns.rows());
  self.line = self.read.front().line;
  self.header().check_width(self.read);
  self.extend();
  return self.read_fields(features);
}

std::span<const float> RowReader::missing_rows() const { return held().missing_rows; }
std::span<const double> RowReader::target_values() const { return held().target_values; }
std::optional<double> RowReader::date() const { return held().date_of_row(); }
bool RowReader::starts_sequence() const { return held().starts_sequence; }
void RowReader::restart() {
  held().series.restart();
  held().sequence_names.clear();
  held().restarted = true;
}
const Group& RowReader::group() const {
  const Impl& self = held();
  const bool grouped = self.columns.group || self.data.series.groups_are_files;
  require(self.series.current() != nullptr && grouped, "no row of a group has been read");
  return self.series.current()->group;
}

bool RowReader::knows_group() const {
  const data::StreamSeries* const series = held().series.current();
  return series == nullptr || series->settled;
}

void RowReader::add_group(const Group& group) { held().series.add(group); }

const Group& RowReader::settle_group(const std::string& name, std::span<float> features, Index count) {
  return held().series.settle(name, features, count, held().source());
}

std::map<std::string, RowReader::LastRow> RowReader::last_rows() const { return held().series.last_rows(); }
void RowReader::set_last_rows(const std::map<std::string, LastRow>& rows) { held().series.set_last_rows(rows); }

std::optional<std::size_t> RowReader::column(const std::string& name) const { return held().header().find(name); }

std::string_view RowReader::text(std::size_t column) const { return held().field(column).text(); }

bool RowReader::is_to_come() const { return held().to_come; }

std::optional<double> RowReader::number(std::size_t column) const {
  double value = 0.0;
  const data::Field& field = held().field(column);
  if (field.is_missing()) return std::nullopt;
  const bool sound = field.number(held().decimal(), value) == std::errc{} && std::isfinite(value);
  return sound ? std::optional(value) : field.truth();
}

bool RowReader::left_out() const { return held().left_out; }
const RowFindings& RowReader::findings() const { return held().findings; }

}  // namespace penstock
