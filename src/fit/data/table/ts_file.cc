#include "data/table/ts_file.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/lower_case.h"
#include "base/plural.h"
#include "base/quote.h"
#include "data/table/csv.h"
#include "data/table/missing_words.h"
#include "data/table/number.h"
#include "penstock/stop.h"
#include "penstock/types.h"

namespace penstock::data {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const std::size_t begin = text.find_first_not_of(blanks);
  return begin == text.npos ? std::string_view() : text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

/// The parts between separators.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(trimmed(text.substr(0, end)));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

class TsReader {
 public:
  TsReader(std::string_view content, const std::string& source) : content_(content), source_(source) {}

  std::string read() {
    while (!content_.empty()) {
      stop_if_asked();
      const std::size_t end = std::min(content_.find('\n'), content_.size());
      ++line_;
      take(trimmed(content_.substr(0, end)));
      content_.remove_prefix(std::min(end + 1, content_.size()));
    }
    if (series_ == 0) fail(ErrorCode::bad_input, "{}: there are no series behind @data", source_);
    return std::move(table_);
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::bad_input, "{}:{}: {}", source_, line_, fmt::format(format, std::forward<Args>(args)...));
  }

  void take(std::string_view line) {
    if (line.empty() || line.starts_with('#')) return;
    if (data_) return add_series(line);
    if (!line.starts_with('@')) refuse("{} stands in front of @data", in_quotes(line));
    const std::string entry = lower_case(line);
    data_ = entry == "@data";
    if (entry.starts_with("@timestamps") && entry.ends_with("true")) refuse("series with time stamps cannot be read");
    if (entry.starts_with("@classlabel") && trimmed(entry.substr(11)).starts_with("false")) {
      refuse("the series have no classes to learn");
    }
    if (entry.starts_with("@targetlabel") && trimmed(entry.substr(12)).starts_with("true")) {
      refuse("the series have numbers as targets, not classes, which cannot be learnt");
    }
  }

  void add_series(std::string_view line) {
    const std::vector<std::string_view> parts = split(line, ':');
    const std::size_t dimensions = parts.size() - 1;
    if (dimensions == 0) refuse("there is no ':' between the values and a class");
    if (series_ == 0) begin(dimensions);
    if (dimensions != dimensions_) refuse("{}, the first series has {}", counted(dimensions, "dimension"), dimensions_);
    std::vector<std::vector<std::string_view>> values;
    for (std::size_t d = 0; d < dimensions; ++d) {
      values.push_back(split(parts[d], ','));
      if (values[d].size() != values[0].size()) {
        refuse("dimension {} has {}, dimension 1 has {}", d + 1, counted(values[d].size(), "value"), values[0].size());
      }
      for (const std::string_view value : values[d]) check(value);
    }
    if (parts.back().empty()) refuse("the class is missing");
    std::string front = fmt::format("{},", ++series_);
    append_quoted(parts.back(), front);
    for (std::size_t t = 0; t < values[0].size(); ++t) {
      table_ += front;
      for (std::size_t d = 0; d < dimensions; ++d) table_.append(",").append(values[d][t]);
      table_ += '\n';
    }
  }

  void begin(std::size_t dimensions) {
    dimensions_ = dimensions;
    table_ = "sequence,label";
    for (std::size_t d = 0; d < dimensions; ++d) table_ += fmt::format(",dim{}", d);
    table_ += '\n';
  }

  void check(std::string_view value) const {
    double number = 0.0;
    if (is_missing(value) ||
        (parse_number(value, '.', number) == std::errc{} && value.find_first_of(", '%\"") == value.npos))
      return;
    refuse("{} is not a number", in_quotes(value));
  }

  std::string_view content_;
  const std::string& source_;
  std::string table_;
  std::size_t dimensions_ = 0;
  Index line_ = 0, series_ = 0;
  bool data_ = false;
};

}  // namespace

std::string table_of_ts(std::string_view content, const std::string& source) {
  return TsReader(content, source).read();
}

}  // namespace penstock::data
