#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/denormals.h"
#include "network/program_impl.h"

namespace penstock::network {

/// One run at a time of a program, with its state. Running allocates nothing, locks nothing and makes no system call.
/// Denormal numbers count as zeros.
class Session {
 public:
  /// Takes workspace_bytes() of the caller's memory, aligned to 64. States are zero.
  Session(std::shared_ptr<const Program> program, void* memory);
  /// Opens a session whose states are zero. `memory`: workspace_bytes() of the caller's, aligned to 64; null: its own.
  static Status open(std::shared_ptr<const Program> program, void* memory, std::unique_ptr<Session>& session);

  const Program& program() const { return *program_; }
  /// Where to write an input before a run, and where an output lies after it, by position in the network. States are
  /// carried over by run() itself.
  void* input(std::size_t position);
  const void* output(std::size_t position) const;
  void run() {
    const WithDenormals as_zeros(DenormalMode::zeros());
    for (const Step& step : steps_) step.run(step, memory_);
    if (!copied_.empty()) carry_states();
  }
  /// Sets all states to zero.
  void reset();
  /// All states, one after the other, in the order of Network::states.
  std::size_t state_bytes() const { return program_->state_bytes(); }
  void read_state(void* bytes) const;
  void write_state(const void* bytes);
  /// Copies that of a session of the same program.
  void take_state(const Session& other);

 private:
  void carry_states();

  std::shared_ptr<const Program> program_;
  std::unique_ptr<std::byte[]> own_;
  // What run() takes of the program, without pointers on the way: single samples wait for each.
  Memory memory_;
  std::span<const Step> steps_;
  std::span<const Carried> copied_;
};

}  // namespace penstock::network
