#include <algorithm>
#include <cmath>
#include <cstdint>

#include "data/table/dates.h"
#include "data/table/missing_words.h"
#include "data/table/number.h"
#include "data/table/open_table.h"
#include "data/text_encoding.h"
#include "fuzz/refusal.h"
#include "support/arrow_table.h"

using namespace penstock;

namespace {

/// Takes an input apart from the front; zeros follow it.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : text_(reinterpret_cast<const char*>(data), size) {}

  bool done() const { return position_ >= text_.size(); }
  int next() { return done() ? 0 : static_cast<signed char>(text_[position_++]); }
  int below(int n) { return (next() & 0xff) % n; }
  std::string until_line_end() {
    const std::size_t begin = std::min(position_, text_.size()), end = std::min(text_.find('\n', begin), text_.size());
    position_ = end + 1;
    return text_.substr(begin, end - begin);
  }
  /// Returns the next `count` bytes of the input.
  std::string take(std::int64_t count) {
    std::string bytes(static_cast<std::size_t>(count), '\0');
    for (char& byte : bytes) byte = static_cast<char>(next());
    return bytes;
  }
  /// Returns the memory of `count` values of `T`. Each is the next byte of the input, so a small number.
  template <class T>
  std::string small(std::int64_t count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    for (T& value : values) value = static_cast<T>(next());
    return test::bytes_of(values);
  }

 private:
  std::string text_;
  std::size_t position_ = 0;
};

constexpr int most_rows = 8;
constexpr std::int64_t text_bytes = 128, widest = 16;  // small numbers point no farther; bytes of the widest value

/// A column whose buffers are as long as a reader may expect from its length. All else comes from the input: offsets
/// of texts, places in dictionaries, buffers that are missing.
test::ArrowColumn column_of(Bytes& input, bool may_have_dictionary) {
  test::ArrowColumn column{.format = input.until_line_end()};
  column.name = input.until_line_end();
  column.length = input.below(most_rows);
  column.offset = input.below(3);
  const std::int64_t places = column.offset + most_rows + 1;
  const int lacking = input.next();
  const bool texts = column.format == "u" || column.format == "U" || column.format == "vu";
  if ((lacking & 1) == 0) column.buffers.emplace_back(input.take(places));
  if ((lacking & 1) != 0) column.buffers.emplace_back();
  if (column.format == "u") column.buffers.emplace_back(input.small<std::int32_t>(places));
  if (column.format == "U") column.buffers.emplace_back(input.small<std::int64_t>(places));
  if (column.format == "vu") column.buffers.emplace_back(input.small<std::int32_t>(4 * places));
  if (!texts) column.buffers.emplace_back(input.take(widest * places));
  if (texts) column.buffers.emplace_back(input.take(text_bytes));
  if (column.format == "vu") column.buffers.emplace_back(test::bytes_of<std::int64_t>({text_bytes}));
  if ((lacking & 6) == 6) column.buffers[1].reset();
  if ((lacking & 24) == 24) column.buffers.pop_back();
  if (may_have_dictionary && (lacking & 32) != 0) {
    column.dictionary = std::make_shared<test::ArrowColumn>(column_of(input, false));
  }
  return column;
}

/// A field is what its text would be in a file.
void check_field(const data::Field& field) {
  const std::string& text = field.text();
  test::check(io::is_utf8(text) && text.find_first_of("\r\n") == text.npos, "a text that is none of a line");
  test::check(field.is_missing() == data::is_missing(text), "a value that its text lacks");
  double direct = 0.0, parsed = 0.0;
  const std::errc error = data::parse_number(text, '.', parsed);
  test::check(field.number('.', direct) == error, "a number that is none as a text");
  test::check(error != std::errc{} || direct == parsed || std::isnan(parsed), "another number than its text");
  test::check(field.truth() == data::parse_truth(text), "another truth than its text");
  const auto date = field.date(DateForm::month_first, '.'), read = data::parse_date(text);
  test::check(date.has_value() == read.has_value(), "a date that is none as a text");
  test::check(!date || std::abs(*date - *read) <= 1e-6, "another date than its text");
}

void check_table(const Table& table, std::int64_t rows) {
  const data::OpenTable read({table}, {});
  std::int64_t count = 0;
  for (auto each = read.rows(); each.next(); ++count) {
    test::check(each.fields().size() == read.header().width(), "a row of another width");
    for (const data::Field& field : each.fields()) check_field(field);
  }
  test::check(count == rows, "another number of rows");
  test::accepted([&] { (void)read.choose_columns({}); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes input(data, size);
  const int rows = input.below(most_rows);
  std::vector<test::ArrowColumn> columns;
  while (!input.done()) columns.push_back(column_of(input, true));
  test::ArrowTable arrow(std::move(columns), rows);
  test::accepted([&] { check_table(arrow.read(), rows); });
  test::check(arrow.not_released() == 0, "an array that is never released");
  return 0;
}
