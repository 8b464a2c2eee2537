// Steps that become the ending of another: activations, the norm of a batch, a bias.

#include <algorithm>

#include "network/builder.h"
#include "network/transpose.h"

namespace penstock::network {

/// y = x sigmoid(x) is one function.
bool Builder::fuse_swish(std::size_t at, const std::vector<int>& writers, std::vector<int>& readers) {
  Emitted& product = steps_[at];
  if (!product.step.is_binary || product.step.variant != static_cast<int>(Binary::multiply)) return false;
  if (product.reads.size() != 2 || product.step.loops.size() != 1 || !product.step.loops[0].contiguous(3)) return false;
  for (const std::size_t side : {0, 1}) {
    const int x = product.reads[1 - side], share = buffer_of(product.reads[side]);
    if (share < 0 || writers[share] < 0 || readers[share] != 1 || buffers_[share].kept) continue;
    Emitted& writer = steps_[writers[share]];
    const Item &of_x = items_[x], &read = items_[writer.reads[0]];
    if (!writer.step.is_unary || writer.step.ending.op != Unary::sigmoid || buffer_of(x) < 0) continue;
    if (buffer_of(x) != buffer_of(writer.reads[0]) || of_x.offset != read.offset) continue;
    writer.needed = false;
    const Index count = elements(of_x.fact.shape);
    product.step.run = writer.step.run;
    product.step.ending = {Unary::swish, 1, 1};
    product.step.is_unary = true, product.step.is_binary = false;
    product.step.n = {count};
    product.step.types = {Type::f32, Type::f32};
    product.reads = {x};
    product.replaces = {0};
    --readers[buffer_of(x)];
    return true;
  }
  return false;
}

/// A gain and a shift of each channel, or a bias of each column, goes into the weights of the step before.
bool Builder::absorb_into(Step& writer, const Shape& shape, const Emitted& next, std::size_t side) const {
  if (writer.absorb == nullptr) return false;
  const Step& ending = next.step;
  if (ending.scales_channels) {
    const Index channels = ending.n[1];
    if (writer.absorbs_columns && shape.size() != 2) return false;
    return writer.absorb(writer, channels, ending.packed.data(), ending.packed.data() + channels);
  }
  const Fact& bias = items_[next.reads[1 - side]].fact;
  const Index columns = shape.empty() ? 1 : shape.back();
  const bool fits = bias.known != nullptr && !bias.shape.empty() && bias.shape.back() == columns &&
                    elements(bias.shape) == columns && items_[next.writes[0]].fact.shape == shape;
  if (!fits || !writer.absorbs_columns) return false;
  const std::vector<float> gain(static_cast<std::size_t>(columns), 1.0f);
  return writer.absorb(writer, columns, gain.data(), reinterpret_cast<const float*>(bias.known));
}

/// A step becomes the ending of the one that writes what it reads.
bool Builder::fuse_into_writer(std::size_t at, std::vector<int>& writers, const std::vector<int>& readers) {
  Emitted& next = steps_[at];
  Step& ending = next.step;
  std::size_t side = 0;
  if (ending.is_binary && ending.variant == static_cast<int>(Binary::add) && next.reads.size() == 2) {
    side = items_[next.reads[0]].fact.known != nullptr ? 1 : 0;
  } else if (!ending.is_unary && !ending.scales_channels) {
    return false;
  }
  const int buffer = buffer_of(next.reads[side]);
  if (buffer < 0 || writers[buffer] < 0 || readers[buffer] != 1 || buffers_[buffer].kept) return false;
  Emitted& writer = steps_[writers[buffer]];
  const Item &read = items_[next.reads[side]], &written = items_[writer.writes[0]];
  if (writer.writes.size() != 1 || read.offset != 0 || writer.step.ending.op != Unary::none) return false;
  if (read.fact.shape != written.fact.shape) return false;
  if (ending.is_unary) {
    if (!writer.step.takes_ending) return false;
    writer.step.ending = ending.ending;
  } else if (!absorb_into(writer.step, written.fact.shape, next, side)) {
    return false;
  }
  writer.writes[0] = next.writes[0];
  writers[items_[next.writes[0]].buffer] = writers[buffer];
  next.needed = false;
  return true;
}

/// The one output of a layer becomes a part of it.
void Builder::fuse_head(Emitted& column, const std::vector<int>& writers, const std::vector<int>& readers) {
  if (!column.step.is_column || column.step.ending.op != Unary::none) return;
  const int buffer = buffer_of(column.reads[0]);
  if (buffer < 0 || writers[buffer] < 0 || readers[buffer] != 1 || buffers_[buffer].kept) return;
  Emitted& layer = steps_[writers[buffer]];
  if (!layer.step.takes_head || buffer_of(layer.writes[0]) != buffer || items_[column.reads[0]].offset != 0) return;
  const Shape& shape = items_[layer.writes[0]].fact.shape;  // [T, 1, H]
  const Product& product = column.step.product;
  if (product.inner != shape[2] || product.rows != shape[0]) return;
  if (product.rows > 1 && (product.a_stride != shape[2] || product.c_stride != 1)) return;
  layer.step.head = column.step.packed;
  layer.step.f = {column.step.bias.empty() ? 0.0f : column.step.bias[0]};
  layer.step.takes_head = false;
  layer.writes[0] = column.writes[0];
  column.needed = false;
}

void Builder::fuse() {
  std::vector<int> writers(buffers_.size(), -1), readers(buffers_.size(), 0);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    for (const int write : steps_[i].writes) writers[items_[write].buffer] = static_cast<int>(i);
    for (const int read : steps_[i].reads) {
      if (buffer_of(read) >= 0) ++readers[buffer_of(read)];
    }
  }
  for (const int output : outputs_) {
    if (buffer_of(output) >= 0) readers[buffer_of(output)] += 2;  // as if several read it: it stays
  }
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    fuse_swish(i, writers, readers);
    fuse_into_writer(i, writers, readers);
  }
  for (Emitted& emitted : steps_) {
    if (emitted.needed) fuse_head(emitted, writers, readers);
    if constexpr (!kIsRuntime) fuse_images(emitted, writers, readers);
  }
  std::erase_if(steps_, [](const Emitted& emitted) { return !emitted.needed; });
}

}  // namespace penstock::network
