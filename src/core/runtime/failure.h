#pragma once

#include <penstock.h>

#include "base/json_reader.h"
#include "base/quoted.h"

/// Failures as values: this layer is compiled without exceptions.
namespace penstock::runtime {

/// Why a call failed. Functions that may fail get one and return false once it is set.
class Failure {
 public:
  /// `source` begins messages about a file; may be empty.
  explicit Failure(const char* source = "") : source_(source) {
    error_.status = PENSTOCK_OK;  // and no more: each step has one
    error_.text[0] = '\0';
  }

  /// Sets the reason by a format of printf. Returns false.
  [[gnu::format(printf, 3, 4)]] bool set(penstock_status status, const char* format, ...);
  /// As set(), with the name of the file in front.
  [[gnu::format(printf, 3, 4)]] bool in_file(penstock_status status, const char* format, ...);

  /// As in_file(), with the mistake in a JSON text, unless there is a reason already.
  bool in_json(const JsonReader& json);

  penstock_status status() const { return error_.status; }
  /// Copies the reason to the caller's error, which may be null. Returns the status.
  penstock_status report(penstock_error* error) const;

 private:
  const char* source_;
  penstock_error error_;
};

}  // namespace penstock::runtime
