#pragma once

#include <functional>
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
  Frame(const xla::CallFrame& frame, const Context& context) : frame_(frame), context_(context) {}

  /// Returns the place of the call: its device, and on a GPU XLA's stream.
  const Context& context() const { return context_; }
  bool on_gpu() const { return context_.execution.device.is_cuda(); }

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
  /// Takes the next arguments of a batch, if wanted: lengths int64 [B] as int32 [B, 2], the mask of resets [B, T], and
  /// of packed rows the offsets int64 [B + 1] as int32 [B + 1, 2]. Checks lengths on a CPU alone.
  Batch batch(Index rows, Index steps, bool lengths, bool reset, bool packed = false);
  /// Returns memory for the call: on a GPU the last result [bytes], whose size the library checks; on a CPU memory of
  /// this thread. Throws unless all arguments and results were read.
  Memory workspace(std::size_t bytes);
  /// Returns the memory of an array of bytes.
  static Memory bytes_of(const Tensor& array);

 private:
  void finish() const;
  Tensor next(const xla::Buffers& buffers, Index& place, bool wanted, const char* what) const;
  static Tensor by_rows(Tensor tensor, bool time_first);
  const void* attribute(const char* name, std::int32_t type) const;

  const xla::CallFrame& frame_;
  const Context& context_;
  Index argument_ = 0, result_ = 0;
};

/// A handler is registered for one kind of device.
enum class Platform { cpu, cuda };

/// Answers a call by `handle`, unless XLA asks for the version; an exception becomes XLA's error with the same text.
xla::Error* answer(xla::CallFrame* frame, Platform platform, void (*handle)(Frame& frame)) noexcept;

/// Runs `compute` and returns 0. For an Error, returns 1 + its code, and writes its text to `message` [size].
int complain(char* message, std::size_t size, const std::function<void()>& compute) noexcept;

}  // namespace penstock::jax
