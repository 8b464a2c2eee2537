#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "network/network.h"
#include "network/status.h"

namespace penstock::network {

/// A network prepared for the shapes of its inputs: straight-line code with planned memory. Immutable; sessions share
/// it. What depends on shapes and constants alone is computed here, once.
class Program {
 public:
  /// Prepares a network for the shapes of its inputs, in the order of Network::inputs. Returns a Status that names the
  /// node and its operator if a shape does not fit or an operator is unknown. Packs weights; allocates.
  static Status prepare(std::shared_ptr<const Network> network, std::span<const Shape> inputs,
                        std::shared_ptr<const Program>& program);
  ~Program();

  const Network& network() const;
  /// Shape of an input or an output, by its position in the network.
  const Shape& input_shape(std::size_t position) const;
  const Shape& output_shape(std::size_t position) const;
  Type output_type(std::size_t position) const;
  /// Bytes of a session's memory, aligned to 64.
  std::size_t workspace_bytes() const;
  /// Bytes of all states together.
  std::size_t state_bytes() const;

  struct Impl;

 private:
  friend class Session;
  explicit Program(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

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
  void run();
  /// Sets all states to zero.
  void reset();
  /// All states, one after the other, in the order of Network::states.
  std::size_t state_bytes() const { return program_->state_bytes(); }
  void read_state(void* bytes) const;
  void write_state(const void* bytes);
  /// Copies that of a session of the same program.
  void take_state(const Session& other);

 private:
  std::shared_ptr<const Program> program_;
  std::unique_ptr<std::byte[]> own_;
  std::byte* memory_;
};

}  // namespace penstock::network
