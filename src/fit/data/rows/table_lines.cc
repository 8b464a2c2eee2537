#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/quote.h"
#include "data/rows/stream_opening.h"
#include "data/table/table_columns.h"
#include "penstock/data/row_reader.h"
#include "penstock/data/rows.h"
#include "penstock/data_description.h"
#include "penstock/stop.h"

namespace penstock {

namespace {

/// The lines of a table in memory.
class TextLines final : public Lines {
 public:
  explicit TextLines(Table table) : table_(std::move(table)) {}
  const std::string& name() const override { return table_.name; }
  bool line(std::string& line) override {
    if (position_ == table_.text.size()) return false;
    const std::size_t end = std::min(table_.text.find('\n', position_), table_.text.size());
    line.assign(table_.text, position_, end - position_);
    if (line.ends_with('\r')) line.pop_back();
    position_ = std::min(end + 1, table_.text.size());
    return true;
  }

 private:
  Table table_;
  std::size_t position_ = 0;
};

/// How rows are written, and the sequence column of a classifier.
RowFormat format_of(const DataDescription& data, const RowOptions& options) {
  RowFormat format = options.format;
  if (data.task == Task::classify) format.sequence_column = options.sequence_column;
  return format;
}

}  // namespace

Rows::Rows(Lines& input, const DataDescription& data, const RowOptions& options) : name_(input.name()), input_(&input) {
  open_lines(data, format_of(data, options));
  find_columns(data, options);
}

Rows::Rows(Table table, const DataDescription& data, const RowOptions& options)
    : name_(table.name), columns_(table.columns) {
  if (columns_) {
    reader_.emplace(data, *columns_, name_, format_of(data, options));
  } else {
    text_ = std::make_unique<TextLines>(std::move(table));
    input_ = text_.get();
    open_lines(data, format_of(data, options));
  }
  find_columns(data, options);
}

void Rows::open_lines(const DataDescription& data, RowFormat format) {
  if (!input_->line(line_)) fail(ErrorCode::bad_input, "{}: there is nothing to read, not even a header", name_);
  for (; data::is_passed_over(line_, data, format); ++format.first_line) {
    if (!input_->line(line_)) fail(ErrorCode::bad_input, "{}: there is nothing to read but comments", name_);
  }
  reader_.emplace(data, line_, name_, format);
  waiting_ = !format.header.value_or(data.table.header);
}

void Rows::find_columns(const DataDescription& data, const RowOptions& options) {
  for (const std::string& name : options.keep) {
    const auto position = reader_->column(name);
    const bool names_file = data.series.groups_are_files && name == data.series.group_column;
    if (!position && !names_file) {
      fail(ErrorCode::invalid_argument, "the header of {} has no column {}", name_, in_quotes(name));
    }
    kept_positions_.push_back(names_file ? std::nullopt : position);
  }
  kept_.resize(kept_positions_.size());
  if (data.task == Task::classify) sequence_position_ = reader_->column(options.sequence_column);
  features_.resize(static_cast<std::size_t>(data.input_size()));
  target_values_.resize(data.targets.size());
}

std::optional<bool> Rows::read() {
  if (columns_) {
    if (next_ == columns_->rows()) return std::nullopt;
    return reader_->read(*columns_, next_++, features_);
  }
  if (!waiting_ && !input_->line(line_)) return std::nullopt;
  waiting_ = false;
  return reader_->read(line_, features_);
}

Rows::Kind Rows::next() {
  stop_if_asked();
  if (const auto kind = next_of_missing()) return *kind;
  for (bool is_row = false; !is_row;) {
    const auto found = read();
    if (!found) return Kind::end;
    is_row = *found;
    if (!is_row && !reader_->left_out()) return Kind::blank;
  }
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    const auto& position = kept_positions_[i];
    kept_[i] = position ? std::string(reader_->text(*position)) : reader_->group().name;
  }
  if (sequence_position_) sequence_ = reader_->text(*sequence_position_);
  std::ranges::copy(reader_->target_values(), target_values_.begin());
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
  std::ranges::fill(target_values_, std::numeric_limits<double>::quiet_NaN());
  if (!waits_) std::ranges::copy(reader_->target_values(), target_values_.begin());
  if (!waits_) return Kind::row;
  handed_out_ += features_.size();
  ++missing_;
  return Kind::missing;
}

std::optional<double> Rows::date() const { return waits_ ? std::nullopt : reader_->date(); }

}  // namespace penstock
