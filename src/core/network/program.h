#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "network/kernels.h"
#include "network/network.h"
#include "network/status.h"

namespace penstock::network {

/// A network prepared for the shapes of its inputs: straight-line code with planned memory. Immutable; sessions share
/// it. What depends on shapes and constants alone is computed here, once.
class Program {
 public:
  /// Prepares a network for the shapes of its inputs, in the order of Network::inputs. Returns a Status that names the
  /// node and its operator if a shape does not fit or an operator is unknown. Packs weights; allocates.
  /// `prepare_spectrum`: of Kernels.
  static Status prepare(std::shared_ptr<const Network> network, std::span<const Shape> inputs,
                        std::shared_ptr<const Program>& program, PrepareSpectrum prepare_spectrum = nullptr);
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

}  // namespace penstock::network
