#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/data/arrow.h"

namespace penstock::test {

/// The bytes of values, as a buffer of Arrow.
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// A column for the Arrow C data interface.
struct ArrowColumn {
  std::string format;
  std::int64_t length = 0;
  std::vector<std::optional<std::string>> buffers = {};  ///< The first says what is valid; null where there is none.
  std::int64_t offset = 0;
  std::shared_ptr<ArrowColumn> dictionary = nullptr;
  std::string name = "x";
};

/// Columns of whole numbers, fractions and the like, all valid.
template <class T>
ArrowColumn arrow_column(std::string format, const std::vector<T>& values) {
  return {std::move(format), static_cast<std::int64_t>(values.size()), {std::nullopt, bytes_of(values)}};
}

/// A stream of one batch of columns, which must outlive it. Counts what a reader has not released.
class ArrowTable {
 public:
  /// `valid`: which rows are there; empty: all.
  ArrowTable(std::vector<ArrowColumn> columns, std::int64_t rows, std::optional<std::string> valid = std::nullopt)
      : columns_(std::move(columns)) {
    batch_.format = "+s";
    batch_.length = rows;
    batch_.buffers = {std::move(valid)};
    for (const ArrowColumn& column : columns_) {
      schemas_.push_back(&add_schema(column));
      arrays_.push_back(&add_array(column));
    }
  }

  ArrowArrayStream stream() {
    batches_ = 0;
    ArrowArrayStream stream = {};
    stream.get_schema = [](ArrowArrayStream* self, ArrowSchema* out) { return of(self).give_schema(*out); };
    stream.get_next = [](ArrowArrayStream* self, ArrowArray* out) { return of(self).give_batch(*out); };
    stream.get_last_error = [](ArrowArrayStream*) -> const char* { return nullptr; };
    return lent(stream);
  }
  Table read() {
    ArrowArrayStream given = stream();
    return table_of_arrow(given, "the table");
  }
  int not_released() const { return lent_; }

 private:
  template <class T>
  static ArrowTable& of(T* lent) {
    return *static_cast<ArrowTable*>(lent->private_data);
  }

  template <class T>
  T lent(T value) {
    value.private_data = this;
    value.release = [](T* self) {
      --of(self).lent_;
      self->release = nullptr;
    };
    ++lent_;
    return value;
  }

  int give_schema(ArrowSchema& out) {
    ArrowSchema& schema = add_schema(batch_);
    schema.n_children = static_cast<std::int64_t>(schemas_.size());
    schema.children = schemas_.data();
    out = lent(schema);
    return 0;
  }

  int give_batch(ArrowArray& out) {
    out = {};
    if (batches_++ > 0) return 0;
    ArrowArray& batch = add_array(batch_);
    batch.n_children = static_cast<std::int64_t>(arrays_.size());
    batch.children = arrays_.data();
    out = lent(batch);
    return 0;
  }

  ArrowSchema& add_schema(const ArrowColumn& column) {
    ArrowSchema& schema = all_schemas_.emplace_back();
    schema.format = column.format.c_str();
    schema.name = column.name.c_str();
    if (column.dictionary) schema.dictionary = &add_schema(*column.dictionary);
    return schema;
  }

  ArrowArray& add_array(const ArrowColumn& column) {
    std::vector<const void*>& buffers = all_buffers_.emplace_back();
    for (const auto& buffer : column.buffers) buffers.push_back(buffer ? buffer->data() : nullptr);
    ArrowArray& array = all_arrays_.emplace_back();
    array.length = column.length;
    array.offset = column.offset;
    array.n_buffers = static_cast<std::int64_t>(buffers.size());
    array.buffers = buffers.data();
    if (column.dictionary) array.dictionary = &add_array(*column.dictionary);
    return array;
  }

  std::vector<ArrowColumn> columns_;
  ArrowColumn batch_;
  std::deque<ArrowSchema> all_schemas_;
  std::deque<ArrowArray> all_arrays_;
  std::deque<std::vector<const void*>> all_buffers_;
  std::vector<ArrowSchema*> schemas_;  // of the columns, as are these
  std::vector<ArrowArray*> arrays_;
  int batches_ = 0, lent_ = 0;
};

}  // namespace penstock::test
