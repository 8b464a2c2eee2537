#include "rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "penstock/error.h"
#include "terminal.h"
#include "units.h"

namespace penstock::cli {

Rows::Rows(Input& input, const DataDescription& data, const RowOptions& options) : input_(input) {
  if (!input_.line(line_)) {
    throw Error(ErrorCode::bad_input, fmt::format("{}: there is nothing to read, not even a header", input.name()));
  }
  RowFormat format = options.format;
  if (data.task == Task::classify) format.sequence_column = options.sequence_column;
  reader_.emplace(data, line_, input.name(), format);
  waiting_ = !data.header;
  for (const std::string& name : options.keep) {
    const auto position = reader_->column(name);
    const bool names_file = data.groups_are_files && name == data.group_column;
    if (!position && !names_file) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("--keep: the header of {} has no column '{}'", input.name(), printable(name)));
    }
    kept_positions_.push_back(names_file ? std::nullopt : position);
  }
  kept_.resize(kept_positions_.size());
  if (data.task == Task::classify) sequence_position_ = reader_->column(options.sequence_column);
  features_.resize(static_cast<std::size_t>(data.input_size()));
  known_targets_.resize(data.targets.size());
}

std::string Rows::first_replaced() const {
  std::string text = reader_->first_replaced();
  constexpr std::string_view option = "the option 'missing'";
  if (const std::size_t place = text.find(option); place != text.npos) text.replace(place, option.size(), "--missing");
  return text;
}

Rows::Kind Rows::next() {
  if (const auto kind = next_of_missing()) return *kind;
  if (!waiting_ && !input_.line(line_)) return Kind::end;
  waiting_ = false;
  if (!reader_->read(line_, features_)) return Kind::blank;
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    const auto& position = kept_positions_[i];
    kept_[i] = position ? std::string(reader_->text(*position)) : reader_->group().name;
  }
  if (sequence_position_) sequence_ = reader_->text(*sequence_position_);
  std::ranges::copy(reader_->known_targets(), known_targets_.begin());
  if (reader_->missing_rows().empty()) return Kind::row;
  row_ = features_;
  handed_out_ = 0;
  waits_ = true;
  return *next_of_missing();
}

std::optional<Rows::Kind> Rows::next_of_missing() {
  if (!waits_) return std::nullopt;
  const std::span<const float> missing = reader_->missing_rows();
  waits_ = handed_out_ < missing.size();
  const auto next = waits_ ? missing.subspan(handed_out_, features_.size()) : std::span<const float>(row_);
  std::ranges::copy(next, features_.begin());
  std::ranges::fill(known_targets_, 0);
  if (!waits_) std::ranges::copy(reader_->known_targets(), known_targets_.begin());
  if (!waits_) return Kind::row;
  handed_out_ += features_.size();
  ++missing_;
  return Kind::missing;
}

std::optional<double> Rows::date() const { return waits_ ? std::nullopt : reader_->date(); }

void say_replaced(const Rows& rows) {
  if (rows.missing() > 0) {
    say(fmt::format("note: {} row{} missing between others, and went in without values\n", with_commas(rows.missing()),
                    rows.missing() == 1 ? " was" : "s were"));
  }
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
