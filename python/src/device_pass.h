#pragma once

#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "penstock/penstock.h"
#include "penstock/recurrent_program.h"
#include "sequences.h"

namespace penstock::python {

/// Forward passes of a network on a device, from arrays of the host and back to them. It keeps the weights there until
/// they change.
template <class Real>
class DevicePass {
 public:
  explicit DevicePass(Device device) : stream_(device) {}

  /// What a call reads and writes, all of it in the memory of the host and without gaps.
  struct Call {
    const Rows* rows;
    const Real* x;
    const Real* state_in;  ///< Null: zeros.
    Real* y;
    Real* state_out;
    Execution execution;
  };

  /// Waits until all is done. One call at a time; others wait.
  void forward(const RecurrentSpec& spec, std::span<const typename Recurrent<Real>::Parameter> parameters,
               const Call& call);
  /// The weights have changed.
  void forget();

 private:
  Tensor tensor(const Buffer& buffer, std::initializer_list<Index> shape) const;
  Buffer uploaded(const void* from, std::size_t bytes);
  void upload_weights(std::span<const typename Recurrent<Real>::Parameter> parameters);

  std::mutex mutex_;
  Stream stream_;  // outlives the buffers
  std::vector<Buffer> buffers_;
  std::vector<Tensor> weights_;
};

/// The form of a network's calls for those rows.
template <class Real>
RecurrentForm form_of(const RecurrentSpec& spec, const Rows& rows);

}  // namespace penstock::python
