#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/quote.h"
#include "data/table/csv.h"
#include "penstock/data/arrow.h"
#include "penstock/data/dataset.h"

namespace penstock {
namespace {

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

template <class T>
T item(const ArrowArray& array, std::size_t buffer, std::int64_t place) {
  T value;
  std::memcpy(&value, static_cast<const char*>(array.buffers[buffer]) + place * static_cast<std::int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

bool bit(const void* bits, std::int64_t place) {
  return (static_cast<const std::uint8_t*>(bits)[place / 8] >> (place % 8) & 1) != 0;
}

void write_number(double value, std::string& out) {
  if (!std::isnan(value)) fmt::format_to(std::back_inserter(out), "{}", value);
}

/// IEEE 754 binary16.
double half(std::uint16_t bits) {
  constexpr int mantissa_bits = 10, bias = 15, special = 31;
  const int exponent = bits >> mantissa_bits & special, mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == special) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  return sign * std::ldexp(whole, std::max(exponent, 1) - bias - mantissa_bits);
}

/// A whole number of 128 bits over 10^scale.
void write_decimal(Int128 value, int scale, std::string& out) {
  const bool negative = value < 0;
  UnsignedInt128 left = negative ? -static_cast<UnsignedInt128>(value) : static_cast<UnsignedInt128>(value);
  std::string digits;
  for (int place = 0; left > 0 || place <= std::max(scale, 0); ++place, left /= 10) {
    if (place == scale && scale > 0) digits += '.';
    digits += static_cast<char>('0' + static_cast<int>(left % 10));
  }
  if (negative) digits += '-';
  out.append(digits.rbegin(), digits.rend());
  if (scale < 0) out.append(static_cast<std::size_t>(-scale), '0');
}

constexpr std::int64_t seconds_a_day = 86400;

/// `nanoseconds` of a second; a time of zero is a date alone.
void write_time(std::int64_t seconds, std::int64_t nanoseconds, bool utc, std::string& out) {
  const std::int64_t second = (seconds % seconds_a_day + seconds_a_day) % seconds_a_day;
  const std::int64_t day = (seconds - second) / seconds_a_day;
  const std::chrono::year_month_day date{std::chrono::sys_days{std::chrono::days{day}}};
  fmt::format_to(std::back_inserter(out), "{:04}-{:02}-{:02}", static_cast<int>(date.year()),
                 static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
  if (second == 0 && nanoseconds == 0 && !utc) return;
  fmt::format_to(std::back_inserter(out), "T{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
  if (nanoseconds > 0) fmt::format_to(std::back_inserter(out), ".{:09}", nanoseconds);
  if (utc) out += 'Z';
}

/// `ticks` of which a second has so many.
void write_ticks(std::int64_t ticks, std::int64_t a_second, bool utc, std::string& out) {
  constexpr std::int64_t nano = 1'000'000'000;
  const std::int64_t rest = (ticks % a_second + a_second) % a_second;
  write_time((ticks - rest) / a_second, rest * (nano / a_second), utc, out);
}

/// Appends what an array has at a place, its offset counted, where it has something.
using Writer = std::function<void(const ArrowArray&, std::int64_t place, std::string& out)>;

template <class T>
Writer whole_numbers() {
  return [](const ArrowArray& array, std::int64_t place, std::string& out) {
    fmt::format_to(std::back_inserter(out), "{}", +item<T>(array, 1, place));
  };
}

template <class T>
Writer fractions() {
  return [](const ArrowArray& array, std::int64_t place, std::string& out) {
    write_number(static_cast<double>(item<T>(array, 1, place)), out);
  };
}

template <class Offset>
Writer texts() {
  return [](const ArrowArray& array, std::int64_t place, std::string& out) {
    const auto begin = static_cast<std::size_t>(item<Offset>(array, 1, place)),
               end = static_cast<std::size_t>(item<Offset>(array, 1, place + 1));
    if (begin == end) return data::append_quoted({}, out);
    data::append_quoted({static_cast<const char*>(array.buffers[2]) + begin, end - begin}, out);
  };
}

/// A text of up to twelve bytes stands in its view, a longer one in a buffer that the view names.
void write_text_view(const ArrowArray& array, std::int64_t place, std::string& out) {
  struct View {
    std::int32_t size;
    char prefix[4];
    std::int32_t buffer, begin;
  };
  const auto view = item<View>(array, 1, place);
  constexpr std::int32_t inside = 12;
  const auto size = static_cast<std::size_t>(view.size);
  if (view.size <= inside) {
    const char* const views = static_cast<const char*>(array.buffers[1]);
    return data::append_quoted({views + place * static_cast<std::int64_t>(sizeof(View)) + sizeof view.size, size}, out);
  }
  data::append_quoted({static_cast<const char*>(array.buffers[2 + view.buffer]) + view.begin, size}, out);
}

/// "d:19,10" and "d:19,10,64".
std::optional<Writer> decimals(std::string_view format) {
  int precision = 0, scale = 0, bits = 128;
  if (std::sscanf(std::string(format).c_str(), "d:%d,%d,%d", &precision, &scale, &bits) < 2) return std::nullopt;
  const auto of = [scale]<class T>(T) -> Writer {
    return [scale](const ArrowArray& array, std::int64_t place, std::string& out) {
      write_decimal(item<T>(array, 1, place), scale, out);
    };
  };
  if (bits == 32) return of(std::int32_t{});
  if (bits == 64) return of(std::int64_t{});
  if (bits == 128) return of(Int128{});
  return std::nullopt;
}

/// "tss:" to "tsn:", and the time zone behind the colon.
std::optional<Writer> timestamps(std::string_view format) {
  constexpr std::string_view units = "smun";
  const std::size_t unit = units.find(format[2]);
  if (format[3] != ':' || unit == units.npos) return std::nullopt;
  std::int64_t a_second = 1;
  for (std::size_t i = 0; i < unit; ++i) a_second *= 1000;
  return [a_second, utc = format.size() > 4](const ArrowArray& array, std::int64_t place, std::string& out) {
    write_ticks(item<std::int64_t>(array, 1, place), a_second, utc, out);
  };
}

/// For the formats of the C data interface; nothing for what no column of a table can be made of.
std::optional<Writer> writer_of(std::string_view format) {
  if (format.starts_with("d:")) return decimals(format);
  if (format.starts_with("ts") && format.size() >= 4) return timestamps(format);
  if (format == "n") return Writer();  // never asked: all are null
  if (format == "b") {
    return [](const ArrowArray& array, std::int64_t place, std::string& out) {
      out += bit(array.buffers[1], place) ? "true" : "false";
    };
  }
  if (format == "c") return whole_numbers<std::int8_t>();
  if (format == "C") return whole_numbers<std::uint8_t>();
  if (format == "s") return whole_numbers<std::int16_t>();
  if (format == "S") return whole_numbers<std::uint16_t>();
  if (format == "i") return whole_numbers<std::int32_t>();
  if (format == "I") return whole_numbers<std::uint32_t>();
  if (format == "l") return whole_numbers<std::int64_t>();
  if (format == "L") return whole_numbers<std::uint64_t>();
  if (format == "e") {
    return [](const ArrowArray& array, std::int64_t place, std::string& out) {
      write_number(half(item<std::uint16_t>(array, 1, place)), out);
    };
  }
  if (format == "f") return fractions<float>();
  if (format == "g") return fractions<double>();
  if (format == "u") return texts<std::int32_t>();
  if (format == "U") return texts<std::int64_t>();
  if (format == "vu") return write_text_view;
  if (format == "tdD") {
    return [](const ArrowArray& array, std::int64_t place, std::string& out) {
      write_time(item<std::int32_t>(array, 1, place) * seconds_a_day, 0, false, out);
    };
  }
  if (format == "tdm") {
    return [](const ArrowArray& array, std::int64_t place, std::string& out) {
      write_ticks(item<std::int64_t>(array, 1, place), 1000, false, out);
    };
  }
  return std::nullopt;
}

/// Where in the values of a dictionary a place points.
std::int64_t index_at(const ArrowArray& array, std::string_view format, std::int64_t place) {
  switch (format.front()) {
    case 'c':
      return item<std::int8_t>(array, 1, place);
    case 'C':
      return item<std::uint8_t>(array, 1, place);
    case 's':
      return item<std::int16_t>(array, 1, place);
    case 'S':
      return item<std::uint16_t>(array, 1, place);
    case 'i':
      return item<std::int32_t>(array, 1, place);
    case 'I':
      return item<std::uint32_t>(array, 1, place);
    default:
      return item<std::int64_t>(array, 1, place);
  }
}

bool is_there(const ArrowArray& array, std::int64_t place) {
  const void* const valid = array.n_buffers > 0 ? array.buffers[0] : nullptr;
  return valid == nullptr || bit(valid, place);
}

/// One column of every batch.
class ArrowColumn {
 public:
  ArrowColumn(const ArrowSchema& schema, std::int64_t child, const std::string& table)
      : child_(child), name_(schema.name != nullptr ? schema.name : ""), index_format_(schema.format) {
    const ArrowSchema& values = schema.dictionary != nullptr ? *schema.dictionary : schema;
    is_dictionary_ = schema.dictionary != nullptr;
    const auto writer = values.dictionary == nullptr ? writer_of(values.format) : std::nullopt;
    if (!writer) {
      fail(ErrorCode::bad_input,
           "{}: column {} is of Arrow's type {}; columns can be numbers, decimals up to 128 bits, truth values, text, "
           "dates and times: leave it out, or turn it into one of them",
           table, in_quotes(name_), in_quotes(values.format));
    }
    write_ = *writer;
  }

  /// Which of the batches' columns.
  std::int64_t child() const { return child_; }
  const std::string& name() const { return name_; }
  bool is_index() const { return name_.starts_with("__index_level_"); }

  /// Two quotes for what is missing, so that a row of one column is none of none.
  void write(const ArrowArray& column, std::int64_t row, std::string& out) const {
    const std::size_t before = out.size();
    const std::int64_t place = column.offset + row;
    if (write_ && is_there(column, place)) {
      if (!is_dictionary_) write_(column, place, out);
      if (is_dictionary_) write_value(*column.dictionary, index_at(column, index_format_, place), out);
    }
    if (out.size() == before) out += "\"\"";
  }

 private:
  void write_value(const ArrowArray& values, std::int64_t index, std::string& out) const {
    if (is_there(values, values.offset + index)) write_(values, values.offset + index, out);
  }

  std::int64_t child_;
  std::string name_, index_format_;
  bool is_dictionary_ = false;
  Writer write_;
};

class ArrowReader {
 public:
  ArrowReader(ArrowArrayStream& stream, const std::string& name)
      : stream_(stream), table_{.name = name, .text = {}, .named = true} {
    Released<ArrowSchema> schema;
    check(stream_.get_schema(&stream_, &schema.value));
    if (schema.value.format != std::string_view("+s")) {
      fail(ErrorCode::bad_input,
           "{}: this is one column of Arrow's type {}, not a table with names of columns; series.to_frame('NAME') of "
           "pandas, or series.to_frame() of Polars, makes a table of a series",
           name, in_quotes(schema.value.format));
    }
    if (schema.value.n_children == 0) fail(ErrorCode::bad_input, "{}: the table has no columns", name);
    for (const bool index : {true, false}) {
      for (std::int64_t i = 0; i < schema.value.n_children; ++i) {
        ArrowColumn column(*schema.value.children[i], i, name);
        if (column.is_index() == index) columns_.push_back(std::move(column));
      }
    }
  }

  Table read() {
    for (const ArrowColumn& column : columns_) {
      data::append_quoted(column.is_index() ? "" : column.name(), table_.text);
      end(column);
    }
    for (;;) {
      Released<ArrowArray> batch;
      check(stream_.get_next(&stream_, &batch.value));
      if (batch.value.release == nullptr) return std::move(table_);
      for (std::int64_t row = 0; row < batch.value.length; ++row) {
        for (const ArrowColumn& column : columns_) {
          column.write(*batch.value.children[column.child()], batch.value.offset + row, table_.text);
          end(column);
        }
      }
    }
  }

 private:
  void end(const ArrowColumn& column) { table_.text += &column == &columns_.back() ? '\n' : ','; }

  void check(int error) {
    if (error == 0) return;
    const char* const why = stream_.get_last_error(&stream_);
    fail(ErrorCode::bad_input, "{}: the table cannot be read: {}", table_.name,
         why != nullptr ? std::string(why) : std::string(std::strerror(error)));
  }

  ArrowArrayStream& stream_;
  Table table_;
  std::vector<ArrowColumn> columns_;
};

}  // namespace

Table table_of_arrow(ArrowArrayStream& stream, const std::string& name) {
  require(stream.release != nullptr, "the stream of {} has been read already", name);
  Released<ArrowArrayStream> owned;
  std::swap(owned.value, stream);
  return ArrowReader(owned.value, name).read();
}

}  // namespace penstock
