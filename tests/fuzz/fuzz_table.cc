#include <algorithm>
#include <cmath>
#include <cstdint>

#include "data/data_file.h"
#include "data/table/column_choice.h"
#include "data/table/dates.h"
#include "data/table/json_table.h"
#include "data/table/missing_words.h"
#include "data/table/number.h"
#include "data/table/table_format.h"
#include "data/table/ts_file.h"
#include "fuzz/refusal.h"

using namespace penstock;

namespace {

/// Reads a field in every way: only finite numbers and dates within the calendar may come of it.
void read_field(const std::string& text) {
  constexpr double farthest = 4e11;  // seconds: years 1 to 9999
  for (const char decimal : {'.', ','}) {
    double value = 0.0;
    if (data::parse_number(text, decimal, value) == std::errc{}) {
      test::check(!text.empty(), "a number of nothing");
      test::check(!std::isfinite(value) || !data::is_missing(text), "a number that is missing");
    }
  }
  for (const auto order : {DateForm::month_first, DateForm::day_first}) {
    const auto date = data::parse_date(text, order);
    test::check(!date || std::abs(*date) < farthest, "a date beyond the calendar");
  }
  (void)data::decimal_hint(text);
}

/// Every column is read as numbers, read as categories or left out, and only one of these.
void check_choice(const data::OpenTable::Choice& choice, std::size_t width) {
  std::vector<int> uses(width, 0);
  const auto use = [&](std::size_t column) {
    test::check(column < width, "a column that the table lacks");
    ++uses[column];
  };
  for (const std::size_t column : choice.columns) use(column);
  for (const auto& column : choice.categories) use(column.column);
  for (const auto& column : choice.left_out) use(column.column);
  test::check(std::ranges::all_of(uses, [](int count) { return count == 1; }), "a column that is lost or read twice");
}

/// A table whose form is found must be readable in that form, whatever its columns are then.
void check_table(const std::string& text) {
  const data::FoundFormat format = data::find_format(text, {});
  test::check(data::can_delimit(format.delimiter), "a delimiter that cannot be");
  test::check(format.skipped <= text.size(), "more skipped than there is");
  (void)data::describe(format);
  data::CsvReader reader(std::string_view(text).substr(format.skipped), format.delimiter, "fuzz", format.first_line);
  std::vector<data::Field> fields;
  if (!reader.next(fields)) return;
  const data::TableHeader header(fields, "fuzz", format.decimal, format.header);
  data::ColumnChooser chooser(header, format.decimal, {});
  while (reader.next(fields)) {
    header.check_width(fields);
    chooser.look(fields);
    for (const auto& field : fields) read_field(field.text());
  }
  const auto choice = chooser.choice();
  test::check(!choice.columns.empty(), "a choice of nothing");
  check_choice(choice, header.width());
}

/// Checks that a .ts file becomes a readable table.
void check_ts(const std::string& text) {
  const std::string table = data::table_of_ts(text, "fuzz");
  data::CsvReader reader(table, ',', "fuzz");
  std::vector<data::Field> fields;
  test::check(reader.next(fields), "a table without a header");
  const std::size_t width = fields.size();
  Index rows = 0;
  while (reader.next(fields)) {
    test::check(fields.size() == width, "a row of another width");
    ++rows;
  }
  test::check(rows > 0, "a table without rows");
}

/// Checks that JSON lines, or an array, become a table with a row for each object, all of one width.
void check_json_table(const std::string& text) {
  const std::string table = data::table_of_json(text, "fuzz");
  if (table.empty()) return;
  const data::FoundFormat format = data::find_format(table, {});
  test::check(format.delimiter == ',', "another delimiter than was written");
  data::CsvReader reader(std::string_view(table).substr(format.skipped), ',', "fuzz", format.first_line);
  std::vector<data::Field> fields;
  test::check(reader.next(fields), "a table without a header");
  const std::size_t width = fields.size();
  while (reader.next(fields)) test::check(fields.size() == width, "a row of another width");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  test::accepted([&] { check_table(text); });
  test::accepted([&] { check_ts(text); });
  test::accepted([&] { check_json_table(text); });
  read_field(text.substr(0, 64));
  (void)io::binary_kind(text);
  return 0;
}
