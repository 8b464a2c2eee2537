#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/half.h"
#include "base/quote.h"
#include "data/table/table_columns.h"
#include "data/text_encoding.h"
#include "penstock/data/arrow.h"
#include "penstock/data/dataset.h"

namespace penstock {
namespace {

using data::TableColumn;

__extension__ typedef __int128 Int128;                   // NOLINT(modernize-use-using): which takes no __extension__
__extension__ typedef unsigned __int128 UnsignedInt128;  // NOLINT(modernize-use-using)

/// Struct that a producer hands out; released in the destructor.
template <class T>
struct Released {
  T value = {};
  Released() = default;
  ~Released() {
    if (value.release != nullptr) value.release(&value);
  }
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;
};

/// Thrown for an array that breaks the rules of the interface.
struct DamagedArray {
  const char* what;
};

void check_array(bool sound, const char* what) {
  if (!sound) throw DamagedArray{what};
}

const void* buffer_of(const ArrowArray& array, std::int64_t number) {
  const bool is_there = number < array.n_buffers && array.buffers != nullptr && array.buffers[number] != nullptr;
  check_array(is_there, "a buffer is missing");
  return array.buffers[number];
}

template <class T>
T item(const ArrowArray& array, std::int64_t buffer, std::int64_t place) {
  T value;
  std::memcpy(&value, static_cast<const char*>(buffer_of(array, buffer)) + place * std::int64_t{sizeof(T)}, sizeof(T));
  return value;
}

bool bit(const void* bits, std::int64_t place) {
  return (static_cast<const std::uint8_t*>(bits)[place / 8] >> (place % 8) & 1) != 0;
}

bool is_there(const ArrowArray& array, std::int64_t place) {
  const void* const valid = array.n_buffers > 0 && array.buffers != nullptr ? array.buffers[0] : nullptr;
  return valid == nullptr || bit(valid, place);
}

/// A whole number of 128 bits over 10^scale.
std::string decimal_text(Int128 value, int scale) {
  const bool negative = value < 0;
  UnsignedInt128 left = negative ? -static_cast<UnsignedInt128>(value) : static_cast<UnsignedInt128>(value);
  std::string digits(static_cast<std::size_t>(std::max(-scale, 0)), '0');
  for (int place = 0; left > 0 || place <= std::max(scale, 0); ++place, left /= 10) {
    if (place == scale && scale > 0) digits += '.';
    digits += static_cast<char>('0' + static_cast<int>(left % 10));
  }
  if (negative) digits += '-';
  return {digits.rbegin(), digits.rend()};
}

/// Adds the value at a place of an array, offset included, to a column. The value must not be null.
using Reader = std::function<void(const ArrowArray&, std::int64_t place, TableColumn& column)>;

/// An empty column for the values of a format, and the function that reads them.
struct Conversion {
  TableColumn column;
  Reader read;
};

/// Returns the whole number at a place; an unsigned one of 64 bits by its bits.
using WholeItem = std::int64_t (*)(const ArrowArray&, std::int64_t place);

template <class T>
std::int64_t whole_item(const ArrowArray& array, std::int64_t place) {
  return static_cast<std::int64_t>(item<T>(array, 1, place));
}

/// Returns null for a format that is not one of whole numbers.
WholeItem whole_item_of(std::string_view format) {
  constexpr std::pair<std::string_view, WholeItem> items[] = {
      {"c", whole_item<std::int8_t>},   {"C", whole_item<std::uint8_t>}, {"s", whole_item<std::int16_t>},
      {"S", whole_item<std::uint16_t>}, {"i", whole_item<std::int32_t>}, {"I", whole_item<std::uint32_t>},
      {"l", whole_item<std::int64_t>},  {"L", whole_item<std::uint64_t>}};
  const auto found = std::ranges::find(items, format, &std::pair<std::string_view, WholeItem>::first);
  return found == std::end(items) ? nullptr : found->second;
}

Reader wholes(WholeItem read, std::int64_t unit = 1) {
  return
      [=](const ArrowArray& array, std::int64_t place, TableColumn& column) { column.add(unit * read(array, place)); };
}

template <class T>
void read_number(const ArrowArray& array, std::int64_t place, TableColumn& column) {
  column.add(double{item<T>(array, 1, place)});
}

/// Adds `size` bytes of a buffer as a text.
void add_text(const ArrowArray& array, std::int64_t buffer, std::int64_t begin, std::int64_t size,
              TableColumn& column) {
  check_array(begin >= 0 && size >= 0, "a text has a negative length or offset");
  if (size == 0) return column.add(std::string_view());
  const std::string_view text(static_cast<const char*>(buffer_of(array, buffer)) + begin,
                              static_cast<std::size_t>(size));
  check_array(io::is_utf8(text), "a text is not UTF-8");
  column.add(text);
}

template <class Offset>
void read_text(const ArrowArray& array, std::int64_t place, TableColumn& column) {
  const std::int64_t begin = item<Offset>(array, 1, place);
  add_text(array, 2, begin, item<Offset>(array, 1, place + 1) - begin, column);
}

/// A text of up to twelve bytes stands in its view, a longer one in a buffer that the view names.
void read_text_view(const ArrowArray& array, std::int64_t place, TableColumn& column) {
  struct View {
    std::int32_t size;
    char prefix[4];
    std::int32_t buffer, begin;
  };
  const auto view = item<View>(array, 1, place);
  constexpr std::int32_t inside = 12;
  constexpr std::int64_t first = 2;  // of the buffers of texts; the last buffer holds their sizes
  if (view.size <= inside) {
    return add_text(array, 1, place * std::int64_t{sizeof(View)} + std::int64_t{sizeof view.size}, view.size, column);
  }
  check_array(view.buffer >= 0 && view.buffer < array.n_buffers - first - 1, "a text is in a buffer that is missing");
  const auto size = item<std::int64_t>(array, array.n_buffers - 1, view.buffer);
  check_array(view.begin >= 0 && view.size <= size - view.begin, "a text ends outside of its buffer");
  add_text(array, first + view.buffer, view.begin, view.size, column);
}

/// "d:19,10" and "d:19,10,64".
std::optional<Conversion> decimals(std::string_view format, const std::string& name) {
  int precision = 0, scale = 0, bits = 128;
  if (std::sscanf(std::string(format).c_str(), "d:%d,%d,%d", &precision, &scale, &bits) < 2) return std::nullopt;
  constexpr int most = 1000;  // digits; no double needs more
  if (scale < -most || scale > most) return std::nullopt;
  const auto of = [&]<class T>(T) -> Conversion {
    return {TableColumn(name, TableColumn::Type::decimal),
            [scale](const ArrowArray& array, std::int64_t place, TableColumn& column) {
              column.add(decimal_text(item<T>(array, 1, place), scale));
            }};
  };
  if (bits == 32) return of(std::int32_t{});
  if (bits == 64) return of(std::int64_t{});
  if (bits == 128) return of(Int128{});
  return std::nullopt;
}

/// "tss:" to "tsn:", and the time zone behind the colon.
std::optional<Conversion> timestamps(std::string_view format, const std::string& name) {
  constexpr std::string_view units = "smun";
  const std::size_t unit = units.find(format[2]);
  if (format[3] != ':' || unit == units.npos) return std::nullopt;
  std::int64_t a_second = 1;
  for (std::size_t i = 0; i < unit; ++i) a_second *= 1000;
  return Conversion{TableColumn(name, a_second, format.size() > 4), wholes(whole_item<std::int64_t>)};
}

/// Returns the conversion for a format of the C data interface; nothing for a format that tables cannot hold.
std::optional<Conversion> conversion_of(std::string_view format, const std::string& name) {
  using Type = TableColumn::Type;
  const auto of = [&](Type type, const Reader& read) { return Conversion{TableColumn(name, type), read}; };
  if (format.starts_with("d:")) return decimals(format, name);
  if (format.starts_with("ts") && format.size() >= 4) return timestamps(format, name);
  if (format == "n") return of(Type::none, {});  // never asked: all are null
  if (format == "b") {
    return of(Type::truth, [](const ArrowArray& array, std::int64_t place, TableColumn& column) {
      column.add(std::int64_t{bit(buffer_of(array, 1), place)});
    });
  }
  if (const WholeItem read = whole_item_of(format)) {
    return of(format == "L" ? Type::unsigned_whole : Type::whole, wholes(read));
  }
  if (format == "e") {
    return of(Type::number, [](const ArrowArray& array, std::int64_t place, TableColumn& column) {
      column.add(float_of_half(item<std::uint16_t>(array, 1, place)));
    });
  }
  if (format == "f") return of(Type::number, read_number<float>);
  if (format == "g") return of(Type::number, read_number<double>);
  if (format == "u") return of(Type::text, read_text<std::int32_t>);
  if (format == "U") return of(Type::text, read_text<std::int64_t>);
  if (format == "vu") return of(Type::text, read_text_view);
  constexpr std::int64_t seconds_a_day = 86400;
  if (format == "tdD") return Conversion{TableColumn(name, 1, false), wholes(whole_item<std::int32_t>, seconds_a_day)};
  if (format == "tdm") return Conversion{TableColumn(name, 1000, false), wholes(whole_item<std::int64_t>)};
  return std::nullopt;
}

std::string text_of(const char* text) { return text != nullptr ? text : ""; }

/// One column of every batch.
class ArrowColumn {
 public:
  ArrowColumn(const ArrowSchema& schema, std::int64_t child, const std::string& table)
      : child_(child), is_dictionary_(schema.dictionary != nullptr) {
    const ArrowSchema& values = is_dictionary_ ? *schema.dictionary : schema;
    const std::string name = text_of(schema.name), format = text_of(values.format);
    is_index_ = name.starts_with("__index_level_");
    if (is_dictionary_) index_ = whole_item_of(text_of(schema.format));
    const bool flat = values.dictionary == nullptr && (index_ != nullptr || !is_dictionary_);
    auto conversion = flat ? conversion_of(format, is_index_ ? "" : name) : std::nullopt;
    if (!conversion) {
      fail(ErrorCode::bad_input,
           "{}: column {} is of Arrow's type {}; columns can be numbers, decimals up to 128 bits, truth values, text, "
           "dates and times: leave it out, or turn it into one of them",
           table, in_quotes(name), in_quotes(format));
    }
    column_ = std::move(conversion->column);
    read_ = std::move(conversion->read);
  }

  bool is_index() const { return is_index_; }
  TableColumn take() { return *std::move(column_); }

  /// Adds the rows of a batch.
  void add(const ArrowArray& batch, const std::string& table) {
    try {
      check_array(child_ < batch.n_children && batch.children != nullptr && batch.children[child_] != nullptr,
                  "a batch lacks it");
      const ArrowArray& column = *batch.children[child_];
      check_array(batch.offset >= 0 && column.offset >= 0 && batch.length <= column.length - batch.offset,
                  "it is shorter than its batch");
      for (std::int64_t row = batch.offset; row < batch.offset + batch.length; ++row) {
        if (is_there(batch, row)) {
          add(column, column.offset + row);
        } else {
          column_->add_missing();
        }
      }
    } catch (const DamagedArray& damage) {
      fail(ErrorCode::bad_input, "{}: column {}: the Arrow data are damaged: {}", table, in_quotes(column_->name()),
           damage.what);
    }
  }

 private:
  void add(const ArrowArray& array, std::int64_t place) {
    if (!read_ || !is_there(array, place)) return column_->add_missing();
    if (!is_dictionary_) return read_(array, place, *column_);
    const ArrowArray* const values = array.dictionary;
    const std::int64_t index = index_(array, place);
    check_array(values != nullptr && index >= 0 && index < values->length && values->offset >= 0,
                "its dictionary lacks a value");
    if (!is_there(*values, values->offset + index)) return column_->add_missing();
    read_(*values, values->offset + index, *column_);
  }

  std::int64_t child_;                     // which of the batches' columns
  bool is_dictionary_, is_index_ = false;  // the latter: of pandas
  WholeItem index_ = nullptr;              // reads a place in the dictionary
  std::optional<TableColumn> column_;
  Reader read_;
};

}  // namespace

Table table_of_arrow(ArrowArrayStream& stream, const std::string& name) {
  require(stream.release != nullptr, "the stream of {} has been read already", name);
  Released<ArrowArrayStream> owned;
  std::swap(owned.value, stream);
  const auto check = [&](int error) {
    if (error == 0) return;
    const char* const why = owned.value.get_last_error(&owned.value);
    fail(ErrorCode::bad_input, "{}: the table cannot be read: {}", name,
         why != nullptr ? std::string(why) : std::string(std::strerror(error)));
  };
  Released<ArrowSchema> schema;
  check(owned.value.get_schema(&owned.value, &schema.value));
  const std::string format = text_of(schema.value.format);
  if (format != "+s") {
    fail(ErrorCode::bad_input,
         "{}: this is one column of Arrow's type {}, not a table with names of columns; series.to_frame('NAME') of "
         "pandas, or series.to_frame() of Polars, makes a table of a series",
         name, in_quotes(format));
  }
  if (schema.value.n_children == 0) fail(ErrorCode::bad_input, "{}: the table has no columns", name);
  std::vector<ArrowColumn> columns;
  for (const bool index : {true, false}) {
    for (std::int64_t i = 0; i < schema.value.n_children; ++i) {
      ArrowColumn column(*schema.value.children[i], i, name);
      if (column.is_index() == index) columns.push_back(std::move(column));
    }
  }
  for (;;) {
    Released<ArrowArray> batch;
    check(owned.value.get_next(&owned.value, &batch.value));
    if (batch.value.release == nullptr) break;
    for (ArrowColumn& column : columns) column.add(batch.value, name);
  }
  std::vector<TableColumn> read;
  for (ArrowColumn& column : columns) read.push_back(column.take());
  return {.name = name, .columns = std::make_shared<const data::TableColumns>(std::move(read))};
}

}  // namespace penstock
