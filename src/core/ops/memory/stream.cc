// Streams and memory of any device, as the public interface shows them.

#include "ops/memory/stream_queue.h"

#include "base/check.h"

namespace penstock {

struct Stream::Content {
  explicit Content(Device device) : queue(std::make_shared<ops::Queue>(device)) {}
  std::shared_ptr<ops::Queue> queue;
};

const std::shared_ptr<ops::Queue>& queue_of(const Stream& stream) { return stream.content_->queue; }

Stream::Stream(Device device) : content_(std::make_unique<Content>(device)) {}
Stream::~Stream() = default;
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;
Device Stream::device() const { return content_->queue->device(); }
void* Stream::handle() const { return content_->queue->stream(); }
void Stream::synchronize() const { content_->queue->synchronize(); }
void Stream::wait_for(void* stream) const { content_->queue->wait_for(stream); }
void Stream::copy(void* to, const void* from, std::size_t bytes) const {
  ops::copy_memory(device(), to, from, bytes, handle());
}
void Stream::download(void* to, const void* from, std::size_t bytes) const {
  ops::start_download(*content_->queue, to, from, bytes);
  content_->queue->synchronize();
}

struct Buffer::Content {
  std::shared_ptr<ops::Queue> queue;
  ops::Buffer buffer;
};

Buffer::Buffer() = default;
Buffer::Buffer(Stream& stream, std::size_t bytes)
    : content_(std::make_unique<Content>(Content{queue_of(stream), ops::Buffer(*queue_of(stream), bytes)})) {}
Buffer::~Buffer() = default;
Buffer::Buffer(Buffer&&) noexcept = default;
Buffer& Buffer::operator=(Buffer&&) noexcept = default;

void* Buffer::data() const { return content_ ? content_->buffer.data() : nullptr; }
std::size_t Buffer::bytes() const { return content_ ? content_->buffer.bytes() : 0; }
void Buffer::clear() {
  if (content_) content_->buffer.zero();
}
void Buffer::upload(const void* from, std::size_t bytes) {
  require_argument(bytes <= this->bytes(), "bytes", bytes, "at most the {} of the buffer", this->bytes());
  if (bytes > 0) content_->buffer.upload(from, bytes);
}
void Buffer::download(void* to, std::size_t bytes) const {
  require_argument(bytes <= this->bytes(), "bytes", bytes, "at most the {} of the buffer", this->bytes());
  if (bytes > 0) content_->buffer.download(to, bytes);
}

}  // namespace penstock
