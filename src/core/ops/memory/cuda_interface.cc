// Graphs, pipelines and memory of a GPU, as the public interface shows them.

#include "backend/cuda/driver/driver.h"
#include "backend/cuda/driver/graph.h"
#include "backend/cuda/driver/staging.h"
#include "base/check.h"
#include "ops/memory/memory.h"
#include "ops/memory/recording.h"
#include "ops/memory/stream_queue.h"
#include "penstock/cuda.h"

namespace penstock {

Device gpu_of(const void* address) {
  int ordinal = -1;
  const cuda::Result result =
      cuda::driver().pointer_get(&ordinal, cuda::pointer_device, reinterpret_cast<cuda::DeviceAddress>(address));
  require_argument(result == cuda::result_success && ordinal >= 0, "address", address, "in the memory of a GPU");
  return Device::cuda(ordinal);
}

void synchronize(Device device) {
  if (!device.is_cuda()) return;
  cuda::Device::get(device.index).make_current();
  cuda::check(cuda::driver().context_synchronize(), "waiting for the GPU");
}

struct CudaGraph::Content {
  std::shared_ptr<ops::Queue> queue;
  std::unique_ptr<ops::Recording> recording;
};

CudaGraph::CudaGraph(Stream& stream, const std::function<void()>& work) {
  require(stream.device().is_cuda(), "stream must be of a GPU, not of {}", to_string(stream.device()));
  content_ =
      std::make_unique<Content>(Content{queue_of(stream), std::make_unique<ops::Recording>(*queue_of(stream), work)});
}
CudaGraph::~CudaGraph() = default;
CudaGraph::CudaGraph(CudaGraph&&) noexcept = default;
CudaGraph& CudaGraph::operator=(CudaGraph&&) noexcept = default;
void CudaGraph::launch(void* stream) const { content_->recording->launch(stream); }

struct CudaPipeline::Content {
  cuda::Pipeline pipeline;
};

CudaPipeline::CudaPipeline(std::size_t input_bytes, std::size_t output_bytes, int device)
    : content_(new Content{cuda::Pipeline(cuda::Device::get(device), input_bytes, output_bytes)}) {}
CudaPipeline::~CudaPipeline() = default;
CudaPipeline::CudaPipeline(CudaPipeline&&) noexcept = default;
CudaPipeline& CudaPipeline::operator=(CudaPipeline&&) noexcept = default;
void CudaPipeline::run(const Fill& fill, const Work& work, const Take& take) {
  content_->pipeline.run(
      fill,
      [&](cuda::DeviceAddress in, cuda::DeviceAddress out, cuda::StreamHandle stream) {
        work(cuda::device_pointer<void>(in), cuda::device_pointer<void>(out), stream);
      },
      take);
}

}  // namespace penstock
