#pragma once

#include <cstdint>
#include <string>

#include "penstock/data/dataset.h"

// Tables from pandas, Polars, PyArrow and DuckDB, through the Arrow C data and stream interfaces. These declarations
// are the ones of https://arrow.apache.org/docs/format/CDataInterface.html; no Arrow library is linked.
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

extern "C" {

struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};

}  // extern "C"

#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

extern "C" {

struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);
  void* private_data;
};

}  // extern "C"

#endif

namespace penstock {

/// Reads a stream of record batches to its end, releases it, and returns a copy of the table.
///
/// - Column types: numbers, decimals, truth values, text, dates, times, and dictionaries of these.
/// - Nulls become missing values. Times with a time zone are converted to UTC.
/// - Index columns of pandas (__index_level_0__, ...) come first and lose their name, as in a CSV file of pandas.
///
/// `name` is the name of the table in messages. Throws Error(bad_input) that names a column of another type or
/// with damaged data, or with the stream's own message if the stream fails.
Table table_of_arrow(ArrowArrayStream& stream, const std::string& name);

}  // namespace penstock
