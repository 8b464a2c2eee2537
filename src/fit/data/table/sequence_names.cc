#include "data/table/sequence_names.h"

#include "base/check.h"
#include "base/quote.h"

namespace penstock::data {

void SequenceNames::begin(const Field& name, const TableHeader& header, std::size_t column) {
  if (!names_.insert(name.text()).second) {
    fail(ErrorCode::bad_input,
         "{}:{}:{}: sequence {} appears again after others: the rows of a sequence must follow each other. Sort the "
         "rows by column {}, or give different sequences different names",
         header.source(), name.line, name.column, in_quotes(name.text()), in_quotes(header.names()[column]));
  }
  if (most_ == std::numeric_limits<std::size_t>::max()) return;
  order_.push_back(name.text());
  if (order_.size() <= most_) return;
  names_.erase(order_.front());
  order_.pop_front();
}

void SequenceNames::clear() {
  names_.clear();
  order_.clear();
}

}  // namespace penstock::data
