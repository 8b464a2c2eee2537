// Queues, memory, graphs and pipelines of a GPU, as the public interface shows them.

#include <optional>

#include "backend/cuda/runtime/graph.h"
#include "backend/cuda/runtime/staging.h"
#include "ops/cuda_types.h"

namespace penstock {

struct CudaQueue::Content {
  cuda::Stream stream;
  explicit Content(int device) : stream(cuda::Device::get(device)) {}
};

CudaQueue::CudaQueue(int device) : content_(std::make_unique<Content>(device)) {}
CudaQueue::~CudaQueue() = default;
CudaQueue::CudaQueue(CudaQueue&&) noexcept = default;
CudaQueue& CudaQueue::operator=(CudaQueue&&) noexcept = default;
CudaStream CudaQueue::stream() const { return content_->stream.handle(); }
void CudaQueue::synchronize() const { content_->stream.synchronize(); }

struct CudaBuffer::Content {
  cuda::Buffer buffer;
};

CudaBuffer::CudaBuffer() : content_(std::make_unique<Content>()) {}
CudaBuffer::CudaBuffer(CudaQueue& queue, std::size_t bytes)
    : content_(std::make_unique<Content>(Content{cuda::Buffer(queue.content().stream, bytes)})) {}
CudaBuffer::~CudaBuffer() = default;
CudaBuffer::CudaBuffer(CudaBuffer&&) noexcept = default;
CudaBuffer& CudaBuffer::operator=(CudaBuffer&&) noexcept = default;
CudaAddress CudaBuffer::address() const { return content_->buffer.address(); }
std::size_t CudaBuffer::bytes() const { return content_->buffer.bytes(); }
void CudaBuffer::clear() { content_->buffer.fill(0); }
void CudaBuffer::upload(const void* from, std::size_t bytes) { content_->buffer.upload(from, bytes); }
void CudaBuffer::download(void* to, std::size_t bytes) const { content_->buffer.download(to, bytes); }

struct CudaGraph::Content {
  cuda::Graph graph;
};

CudaGraph::CudaGraph(CudaQueue& queue, const std::function<void()>& work)
    : content_(std::make_unique<Content>(Content{cuda::Graph(queue.content().stream, work)})) {}
CudaGraph::~CudaGraph() = default;
CudaGraph::CudaGraph(CudaGraph&&) noexcept = default;
CudaGraph& CudaGraph::operator=(CudaGraph&&) noexcept = default;
void CudaGraph::launch(CudaStream stream) const { content_->graph.launch(ops::handle_of(stream)); }

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
      fill, [&](cuda::DeviceAddress in, cuda::DeviceAddress out, cuda::StreamHandle stream) { work(in, out, stream); },
      take);
}

}  // namespace penstock
