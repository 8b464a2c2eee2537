#pragma once

#include <cstdint>
#include <initializer_list>

/// Yes-or-no properties of the calls of a program.
namespace penstock {

/// Operands and options of calls. Forms hold a set of these (CallFlags).
enum class CallFlag : std::uint16_t {
  lengths,   ///< Calls have Batch::lengths.
  reset,     ///< Calls have Batch::reset.
  training,  ///< The forward pass fills a tape for a backward pass, and dropout applies.
  /// Packed rows on a GPU, sorted by decreasing length: calls have Batch::batch_sizes. Rows that have ended then leave
  /// the multiprocessors to the others. A row's result may then differ with the lengths of the other rows, by the order
  /// of summation.
  sorted,
  no_input_gradient,  ///< The backward pass does not compute dx.
  add_gradients,      ///< The backward pass adds to the gradients of weights instead of overwriting them.
  keep_tape,          ///< The backward pass leaves its tape as it is, for another one. It may take more memory.
  every_state,        ///< Calls have RecurrentProgram::Forward::states. Only for cells with more than one state.
  /// Calls are single steps of a stream: one step, without training, lengths, resets and packed rows, in
  /// Direction::forward. CPU: one row, f32 or f64. GPU: scan cells with any number of rows, in one launch; their gates
  /// are never rounded to the type of x.
  step,
  /// Calls have no RecurrentProgram::Forward::packed, so each call packs the weights itself. On a CPU, where packing
  /// would take longer than it saves, forward passes of dense cells then read the weights unpacked and multiply in full
  /// precision, except in exact mode. Results for few and for many positions may then differ, by the order of summation
  /// and `precision`.
  packs_each_call,
};

/// A set of flags: `CallFlags flags = {CallFlag::training, CallFlag::lengths};`.
class CallFlags {
 public:
  constexpr CallFlags() = default;
  constexpr CallFlags(std::initializer_list<CallFlag> flags) {
    for (const CallFlag flag : flags) set(flag);
  }

  constexpr bool has(CallFlag flag) const { return (bits_ & bit(flag)) != 0; }
  constexpr CallFlags& set(CallFlag flag, bool on = true) {
    bits_ = static_cast<std::uint16_t>(on ? bits_ | bit(flag) : bits_ & ~bit(flag));
    return *this;
  }
  constexpr std::uint16_t bits() const { return bits_; }
  constexpr bool operator==(const CallFlags&) const = default;

 private:
  static constexpr std::uint16_t bit(CallFlag flag) {
    return static_cast<std::uint16_t>(1u << static_cast<unsigned>(flag));
  }

  std::uint16_t bits_ = 0;
};

}  // namespace penstock
