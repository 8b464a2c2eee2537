#include "rows.h"

#include <fmt/format.h>

#include <charconv>

#include "penstock/error.h"
#include "terminal.h"
#include "units.h"

namespace penstock::cli {

Rows::Rows(Input& input, const DataDescription& data, const RowOptions& options) : input_(input) {
  if (!input_.line(line_)) {
    throw Error(ErrorCode::bad_input, fmt::format("{}: there is nothing to read, not even a header", input.name()));
  }
  reader_.emplace(data, line_, input.name(), options.format);
  waiting_ = !data.header;
  for (const std::string& name : options.keep) {
    const auto position = reader_->column(name);
    if (!position) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("--keep: the header of {} has no column '{}'", input.name(), printable(name)));
    }
    kept_positions_.push_back(*position);
  }
  kept_.resize(kept_positions_.size());
  if (data.task == Task::classify) sequence_position_ = reader_->column(options.sequence_column);
  features_.resize(static_cast<std::size_t>(data.input_size()));
}

std::string Rows::first_replaced() const {
  std::string text = reader_->first_replaced();
  constexpr std::string_view option = "the option 'missing'";
  if (const std::size_t place = text.find(option); place != text.npos) text.replace(place, option.size(), "--missing");
  return text;
}

Rows::Kind Rows::next() {
  if (!waiting_ && !input_.line(line_)) return Kind::end;
  waiting_ = false;
  if (!reader_->read(line_, features_)) return Kind::blank;
  for (std::size_t i = 0; i < kept_.size(); ++i) kept_[i] = reader_->text(kept_positions_[i]);
  if (sequence_position_) {
    const std::string_view name = reader_->text(*sequence_position_);
    starts_sequence_ = !first_ && name != sequence_;
    sequence_ = name;
  }
  first_ = false;
  return Kind::row;
}

void say_replaced(const Rows& rows) {
  const Index count = rows.replaced();
  if (count == 0) return;
  say(fmt::format("note: {} value{} replaced by the last of {} column; the first: {}\n", with_commas(count),
                  count == 1 ? " was" : "s were", count == 1 ? "its" : "their", printable(rows.first_replaced())));
}

std::vector<std::int32_t> parse_tokens(const std::string& line, Index vocabulary, const std::string& source,
                                       Index line_number) {
  constexpr std::string_view blanks = " \t";
  std::vector<std::int32_t> tokens;
  for (std::size_t begin = line.find_first_not_of(blanks); begin != std::string::npos;) {
    const std::size_t end = std::min(line.find_first_of(blanks, begin), line.size());
    const std::string_view word = std::string_view(line).substr(begin, end - begin);
    std::int32_t token = -1;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    if (error != std::errc() || stop != word.data() + word.size() || token < 0 || token >= vocabulary) {
      throw Error(ErrorCode::bad_input, fmt::format("{}:{}:{}: a token must be 0 to {}, not '{}'", source, line_number,
                                                    begin + 1, vocabulary - 1, printable(word)));
    }
    tokens.push_back(token);
    begin = line.find_first_not_of(blanks, end);
  }
  return tokens;
}

}  // namespace penstock::cli
