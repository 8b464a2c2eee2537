#include "ops/memory/recording.h"

#include <utility>

#include "backend/cuda/driver/graph.h"
#include "ops/memory/cuda_queue.h"

namespace penstock::ops {

struct Recording::Graph {
  Graph(cuda::Stream& stream, const std::function<void()>& work) : graph(stream, work) {}
  cuda::Graph graph;
};

Recording::Recording(Queue& queue, std::function<void()> work) : queue_(&queue), work_(std::move(work)) {
  if (queue.cuda() != nullptr) graph_ = std::make_unique<Graph>(queue.cuda()->stream, work_);
}
Recording::~Recording() = default;
Recording::Recording(Recording&&) noexcept = default;
Recording& Recording::operator=(Recording&&) noexcept = default;

void Recording::run() const { launch(queue_->stream()); }

void Recording::launch(void* stream) const {
  if (graph_) {
    graph_->graph.launch(static_cast<cuda::StreamHandle>(stream));
  } else {
    work_();
  }
}

}  // namespace penstock::ops
