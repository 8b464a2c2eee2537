#pragma once

#include <array>
#include <optional>
#include <span>

#include "graph/program.h"
#include "penstock/data/dataset.h"

namespace penstock::training {

/// An Example in the memory of a device: everything in one buffer, which grows with the largest example.
class DeviceBatch {
 public:
  explicit DeviceBatch(ops::Queue& queue) : queue_(&queue) {}

  /// Makes room; true if what was bound before has moved.
  bool reserve(const Example& example);
  /// Copies in the order of the queue, to a GPU through staging memory. The marker is waited for first, and set behind
  /// the copy.
  void start_upload(const Example& example, std::optional<ops::StagingBuffer>& staging, ops::Marker& copied);

  /// Says where a workspace finds the parts.
  void bind(graph::Workspace& workspace) const;
  /// A call on the batch.
  ops::Call call(const Example& example, const Execution& execution) const;

 private:
  enum Part { tokens, features, labels, targets, target_weights, lengths, reset, part_count };
  static std::array<std::span<const std::byte>, part_count> parts_of(const Example& example);
  std::byte* place(Part part) const { return static_cast<std::byte*>(memory_.data()) + places_[part]; }

  ops::Queue* queue_;
  ops::Buffer memory_;
  std::array<std::size_t, part_count> places_ = {};
  std::size_t size_ = 0;
};

}  // namespace penstock::training
