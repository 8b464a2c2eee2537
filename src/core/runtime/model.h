#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/failure.h"
#include "runtime/read_description.h"
#include "runtime/tensor_file.h"

namespace penstock::runtime {

class Session;

/// An opened model of a file. Immutable; sessions share it.
class Model {
 public:
  Model() = default;
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  void keep() { holders_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  /// Bytes of a session, its object included.
  virtual std::size_t session_bytes() const = 0;
  /// Makes a session in so many bytes of aligned memory. `own` is what it frees when it is closed, or null.
  virtual Session* make_session(std::byte* memory, void* own) = 0;

  Description description;
  const char* instruction_set = nullptr;
  std::size_t inputs = 0, outputs = 0;  ///< Values of a step.
  std::size_t state_bytes = 0;
  bool float_state = true;  ///< The state has floats alone.
  std::uint64_t parameters = 0, checksum = 0;

 protected:
  /// Chooses the instruction set.
  bool choose_kernels(Failure& failure);

  TensorFile file_;

 private:
  std::atomic<long> holders_{1};
};

}  // namespace penstock::runtime
