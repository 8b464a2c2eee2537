#include "data/device_batch.h"

#include <cstring>

namespace penstock::training {

std::array<std::span<const std::byte>, DeviceBatch::part_count> DeviceBatch::parts_of(const Example& example) {
  const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  return {bytes(example.tokens),  bytes(example.features), bytes(example.labels), bytes(example.targets),
          bytes(example.weights), bytes(example.lengths),  bytes(example.reset)};
}

bool DeviceBatch::reserve(const Example& example) {
  const auto parts = parts_of(example);
  const std::array<std::size_t, part_count> before = places_;
  size_ = 0;
  for (std::size_t i = 0; i < part_count; ++i) {
    places_[i] = size_;
    size_ += aligned(parts[i].size());
  }
  if (memory_.bytes() >= size_) return places_ != before;
  memory_ = ops::Buffer(*queue_, size_);
  return true;
}

void DeviceBatch::start_upload(const Example& example, std::optional<ops::StagingBuffer>& staging,
                               ops::Marker& copied) {
  copied.wait();
  const bool is_staged = queue_->stream() != nullptr;  // a CPU's memory is written directly
  if (is_staged && (!staging || staging->bytes() < size_)) staging.emplace(*queue_, size_);
  std::byte* const to = is_staged ? staging->data() : static_cast<std::byte*>(memory_.data());
  const auto parts = parts_of(example);
  for (std::size_t i = 0; i < part_count; ++i) {
    if (!parts[i].empty()) std::memcpy(to + places_[i], parts[i].data(), parts[i].size());
  }
  if (is_staged) memory_.start_upload(to, size_);
  copied.set();
}

void DeviceBatch::bind(graph::Workspace& workspace) const {
  using graph::Home;
  workspace.bind(Home::tokens, place(tokens));
  workspace.bind(Home::features, place(features));
  workspace.bind(Home::labels, place(labels));
  workspace.bind(Home::targets, place(targets));
  workspace.bind(Home::target_weights, place(target_weights));
}

ops::Call DeviceBatch::call(const Example& example, const Execution& execution) const {
  ops::Call call{.batch = {.rows = example.rows, .steps = example.steps}, .threads = execution.threads};
  if (!example.lengths.empty()) call.batch.lengths = reinterpret_cast<const Index*>(place(lengths));
  if (!example.reset.empty()) call.batch.reset = reinterpret_cast<const std::uint8_t*>(place(reset));
  call.stream = queue_->stream();
  return call;
}

}  // namespace penstock::training
