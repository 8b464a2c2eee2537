#include "backend/cuda/driver/graph.h"

#include <utility>

#include "backend/cuda/driver/driver.h"
#include "base/check.h"

namespace penstock::cuda {
namespace {

/// A recording that ends whatever happens.
class Recording {
 public:
  explicit Recording(StreamHandle stream) : stream_(stream) {
    check(driver().capture_begin(stream, capture_thread_local), "recording a graph");
  }
  ~Recording() {
    if (!ended_) driver().capture_end(stream_, &graph_);
    if (graph_ != nullptr) driver().graph_destroy(graph_);
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  GraphHandle end() {
    ended_ = true;
    check(driver().capture_end(stream_, &graph_), "recording a graph");
    return graph_;
  }

 private:
  StreamHandle stream_;
  GraphHandle graph_ = nullptr;
  bool ended_ = false;
};

}  // namespace

Graph::Graph(Device& device, StreamHandle stream, const std::function<void()>& work) : device_(&device) {
  require(stream != nullptr, "stream must not be the default stream, which cannot be recorded");
  device_->make_current();
  Recording recording(stream);
  work();
  check(driver().graph_instantiate(&recorded_, recording.end(), 0), "making a graph");
}

Graph::~Graph() {
  if (recorded_ != nullptr) driver().graph_exec_destroy(recorded_);
}

Graph::Graph(Graph&& other) noexcept : device_(other.device_), recorded_(std::exchange(other.recorded_, nullptr)) {}

Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(recorded_, other.recorded_);
  return *this;
}

void Graph::launch(StreamHandle stream) const {
  device_->make_current();
  check(driver().graph_launch(recorded_, stream), "launching a graph");
}

}  // namespace penstock::cuda
