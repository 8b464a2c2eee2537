#pragma once

#include <span>
#include <string>

#include "penstock/penstock.h"
#include "xla_ffi.h"

/// Calls of XLA as tensors of the library.
namespace penstock::jax {

/// Reads the buffers and attributes of a call, in order. Every function throws Error(invalid_argument) for a call that
/// has other ones: JAX's users can write such calls, too.
class Frame {
 public:
  explicit Frame(const xla::CallFrame& frame) : frame_(frame) {}

  /// Returns the integers of the attribute "numbers".
  std::span<const Index> numbers(std::size_t count) const;
  /// Returns the attribute "cell".
  std::string cell() const;

  /// Returns the next argument or result as a contiguous tensor; no tensor if it is not `wanted`.
  Tensor argument(bool wanted = true) { return next(frame_.args, argument_, wanted, "arguments"); }
  Tensor result(bool wanted = true) { return next(frame_.rets, result_, wanted, "results"); }
  /// Returns the next argument or result as a view [B, T, C]; its memory is [T, B, C] if `time_first`.
  Tensor sequence(bool time_first, bool wanted = true) { return by_rows(argument(wanted), time_first); }
  Tensor sequence_result(bool time_first, bool wanted = true) { return by_rows(result(wanted), time_first); }
  /// Takes the next arguments of a batch, if wanted: lengths int64 [B] as int32 [B, 2], and the mask of resets [B, T].
  Batch batch(Index rows, Index steps, bool lengths, bool reset);
  /// Throws unless all arguments and results were read.
  void finish() const;

 private:
  static Tensor next(const xla::Buffers& buffers, Index& place, bool wanted, const char* what);
  static Tensor by_rows(Tensor tensor, bool time_first);
  const void* attribute(const char* name, std::int32_t type) const;

  const xla::CallFrame& frame_;
  Index argument_ = 0, result_ = 0;
};

/// Answers a call by `handle`, unless XLA asks for the version; an exception becomes XLA's error with the same text.
xla::Error* answer(xla::CallFrame* frame, void (*handle)(Frame& frame)) noexcept;

}  // namespace penstock::jax
