#pragma once

#include <functional>

#include "backend/cuda/driver/device.h"

namespace penstock::cuda {

/// Work of a stream, recorded once and launched as a whole: one call of the host, however many kernels there are. The
/// addresses that the work was recorded with are those it uses on every launch.
class Graph {
 public:
  /// Records what `work` puts into the stream, which must neither allocate nor wait. Nothing runs yet. Throws what
  /// `work` throws; the stream is then as it was before.
  Graph(Device& device, StreamHandle stream, const std::function<void()>& work);
  Graph(Stream& stream, const std::function<void()>& work) : Graph(stream.device(), stream.handle(), work) {}
  ~Graph();
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;

  /// Into any stream of the same GPU; one launch at a time runs.
  void launch(StreamHandle stream) const;

 private:
  Device* device_ = nullptr;
  GraphExecHandle recorded_ = nullptr;
};

}  // namespace penstock::cuda
