// Steps of many images at once that write what the next one reads fastest. The C runtime, whose streams are single,
// does not have this file.

#include "network/builder.h"

namespace penstock::network {

/// The roots of the sums of squared real and imaginary parts become what a transform writes.
void Builder::fuse_magnitudes(Emitted& root, std::vector<int>& writers, const std::vector<int>& readers) {
  const auto writer_of = [&](int item, int most_readers) -> Emitted* {
    const int buffer = buffer_of(item);
    const bool found = buffer >= 0 && writers[buffer] >= 0 && readers[buffer] == most_readers;
    return found && !buffers_[buffer].kept && items_[item].offset == 0 ? &steps_[writers[buffer]] : nullptr;
  };
  const auto is_unary = [](const Emitted* one, Unary op) { return one->step.is_unary && one->step.ending.op == op; };
  if (!is_unary(&root, Unary::square_root)) return;
  Emitted* const sum = writer_of(root.reads[0], 1);
  if (sum == nullptr || !sum->step.is_binary || sum->step.variant != static_cast<int>(Binary::add)) return;
  if (sum->reads.size() != 2 || sum->reads[0] == sum->reads[1]) return;
  Emitted *transform = nullptr, *squares[2], *parts[2];
  for (const std::size_t half : {0, 1}) {
    squares[half] = writer_of(sum->reads[half], 1);
    if (squares[half] == nullptr || !is_unary(squares[half], Unary::square)) return;
    parts[half] = writer_of(squares[half]->reads[0], 1);
    if (parts[half] == nullptr || !parts[half]->step.images.is_part) return;
    transform = writer_of(parts[half]->reads[0], 2);
    if (transform == nullptr || !transform->step.images.is_spectrum || transform->step.ending.op != Unary::none) return;
    if (parts[half]->reads[0] != parts[0]->reads[0]) return;
    const Shape& whole = items_[transform->writes[0]].fact.shape;  // [images, 2 frequencies, frames]
    const Index frequencies = whole[1] / 2, size = frequencies * whole[2];
    StridedLoop expected;
    expected.first = {0, static_cast<Index>(half) * size, 0, 0};
    expected.add(whole[0], {size, 2 * size, 0, 0});
    expected.add(size, {1, 1, 0, 0});
    const Shape shape = {whole[0], frequencies, whole[2]};
    if (items_[parts[half]->reads[0]].fact.shape != whole || items_[root.writes[0]].fact.shape != shape) return;
    if (!(parts[half]->step.loops[0] == expected)) return;
  }
  transform->step.images.has_magnitudes = true;
  writers[items_[root.writes[0]].buffer] = writers[items_[transform->writes[0]].buffer];
  transform->writes = root.writes;
  for (Emitted* const one : {&root, sum, squares[0], squares[1], parts[0], parts[1]}) one->needed = false;
}

/// A step writes images in the order in which the next one multiplies them.
void Builder::fuse_rows(Emitted& reader, const std::vector<int>& writers, const std::vector<int>& readers) {
  const ImageRows rows = reader.step.images.reads;
  const int buffer = rows.rows > 0 ? buffer_of(reader.reads[0]) : -1;
  if (buffer < 0 || writers[buffer] < 0 || readers[buffer] != 1 || buffers_[buffer].kept) return;
  Emitted& writer = steps_[writers[buffer]];
  const Shape& shape = items_[writer.writes[0]].fact.shape;  // [images, channels, columns]
  if (!writer.step.images.can_write_rows || items_[reader.reads[0]].fact.shape != shape) return;
  writer.step.images.writes = rows;
  reader.step.images.has_rows = true;
  buffers_[buffer].bytes = bytes_of(Type::f32, {shape[0], shape[1], rows.rows});
}

void Builder::fuse_images(Emitted& emitted, std::vector<int>& writers, const std::vector<int>& readers) {
  if (!emitted.needed) return;
  fuse_magnitudes(emitted, writers, readers);
  fuse_rows(emitted, writers, readers);
}

}  // namespace penstock::network
