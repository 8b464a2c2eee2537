#pragma once

#include <functional>
#include <memory>

#include "ops/memory/memory.h"

namespace penstock::ops {

/// Work of a queue that is put into it over and over: on a GPU recorded once as a CUDA graph, so that all its launches
/// are one call of the host; on the CPU done anew.
class Recording {
 public:
  /// Records what `work` puts into the queue; nothing runs yet on a GPU. `work` must neither allocate nor wait.
  Recording(Queue& queue, std::function<void()> work);
  ~Recording();
  Recording(Recording&&) noexcept;
  Recording& operator=(Recording&&) noexcept;

  void run() const;
  /// Launches the work into another stream of the GPU.
  void launch(void* stream) const;

  struct Graph;

 private:
  Queue* queue_;
  std::function<void()> work_;
  std::unique_ptr<Graph> graph_;
};

}  // namespace penstock::ops
