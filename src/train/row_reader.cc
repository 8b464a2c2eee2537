#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/quote.h"
#include "penstock/data.h"
#include "train/csv.h"
#include "train/normalise.h"

namespace penstock {
namespace {

/// The only record of a line. A quoted line break cannot occur here: the stream was cut at every line end.
bool read_line(const std::string& line, char delimiter, const std::string& source, Index number,
               std::vector<data::CsvField>& fields) {
  data::CsvReader reader(line, delimiter, source, number);
  if (!reader.next(fields)) return false;
  std::vector<data::CsvField> more;
  if (reader.next(more)) fail(ErrorCode::bad_input, "{}:{}: more than one line in a line", source, number);
  return true;
}

data::CsvHeader read_header(const DataDescription& description, const std::string& line, const std::string& source) {
  std::vector<data::CsvField> fields;
  if (!read_line(line, description.delimiter, source, 1, fields)) {
    fail(ErrorCode::bad_input, "{}:1:1: the first line must be a header with the names of the columns", source);
  }
  return data::CsvHeader(fields, source);
}

}  // namespace

struct RowReader::Impl {
  Impl(const DataDescription& description, const std::string& header_line, const std::string& source)
      : header(read_header(description, header_line, source)),
        delimiter(description.delimiter),
        inputs(description.inputs) {}

  data::CsvHeader header;
  char delimiter;
  std::vector<Column> inputs;
  std::vector<std::size_t> positions;  // of the inputs in the header
  Index line = 1;                      // the one read last
  std::vector<data::CsvField> read;    // as it comes in ...
  std::vector<data::CsvField> fields;  // ... and once it was found to be sound
  std::vector<float> values;
};

RowReader::RowReader(const DataDescription& description, const std::string& header, std::string source)
    : impl_(new Impl(description, header, source)) {
  require(description.vocabulary == 0, "this model reads tokens, not rows of a CSV file");
  for (const auto& input : impl_->inputs) {
    const auto position = impl_->header.find(input.name);
    if (!position) {
      fail(ErrorCode::bad_input, "{}:1:1: the model reads a column {}, but the header has only {}", source,
           in_quotes(input.name), impl_->header.list());
    }
    impl_->positions.push_back(*position);
  }
  impl_->values.resize(impl_->inputs.size());
}

RowReader::~RowReader() = default;
RowReader::RowReader(RowReader&&) noexcept = default;

bool RowReader::read(const std::string& line, std::span<float> features) {
  Impl& self = *impl_;
  require(features.size() == self.inputs.size(), "features must have room for {} values, not {}", self.inputs.size(),
          features.size());
  ++self.line;
  if (!read_line(line, self.delimiter, self.header.source(), self.line, self.read)) return false;
  self.header.check_width(self.read);
  for (std::size_t i = 0; i < self.inputs.size(); ++i) {
    const double value = self.header.number(self.read, self.positions[i]);
    self.values[i] = data::normalise(value, self.inputs[i], self.header.source(), self.line);
  }
  std::copy(self.values.begin(), self.values.end(), features.begin());
  std::swap(self.fields, self.read);
  return true;
}

std::optional<std::size_t> RowReader::column(const std::string& name) const { return impl_->header.find(name); }

std::string_view RowReader::text(std::size_t column) const {
  require(column < impl_->fields.size(), "column must be below {}, not {}", impl_->fields.size(), column);
  return impl_->fields[column].text;
}

}  // namespace penstock
