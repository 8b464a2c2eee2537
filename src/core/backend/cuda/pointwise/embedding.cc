#include "backend/cuda/pointwise/embedding.h"

#include <bit>

#include "backend/cuda/driver/driver.h"
#include "backend/cuda/pointwise/arguments.h"
#include "base/check.h"
#include "base/training_step.h"

namespace penstock::cuda {
namespace {

constexpr int kChunk = 1024;   // positions of a block that sorts: a thread each
constexpr int kMostBits = 11;  // of a pass: as many counters as 8 KiB hold
constexpr int kSegment = 64;   // sorted positions that one thread sums up

RowPlan forward_plan(const Embedding& spec) {
  return plan_rows(spec.width, vector_for(spec.width, spec.alignment, {spec.storage, spec.table}));
}

/// Sums of few values, for more threads under way.
RowPlan backward_plan(const Embedding& spec) {
  return plan_rows(spec.width, vector_for(spec.width, spec.alignment, {spec.storage, plan::Storage::f32}, 4), 1);
}

/// Positions that a thread reads at a time: as many as its registers hold.
int at_once(const Embedding& spec) { return backward_plan(spec).threads > kBlockThreads ? 2 : 8; }

/// Returns the bits of a token; `vocabulary` itself stands for positions that are left out.
int bits_of(Index vocabulary) { return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(vocabulary))); }

Index in_blocks(Index bytes) { return (bytes + 255) / 256 * 256; }

void check_spec(const Embedding& spec) {
  require_positions(spec.positions);
  require_size(spec.vocabulary, 1, "vocabulary");
  require_size(spec.width, 1, "width");
}

}  // namespace

KernelSource embedding_forward_source(const Embedding& spec) {
  KernelSource source =
      pointwise_source("EmbeddingForward", "embedding_forward",
                       {{"using Storage", storage_type(spec.storage)}, {"using Table", storage_type(spec.table)}});
  forward_plan(spec).add_to(source);
  return source;
}

KernelSource sort_source(SortPart part, bool first, int bits) {
  const char* const entry = part == SortPart::count ? "SortCount" : part == SortPart::scan ? "SortScan" : "SortScatter";
  const char* const file = part == SortPart::count  ? "sort_count"
                           : part == SortPart::scan ? "sort_scan"
                                                    : "sort_scatter";
  return pointwise_source(
      entry, file,
      {{"constexpr bool kFirst", first}, {"constexpr int kBits", bits}, {"constexpr int kThreads", kChunk}});
}

KernelSource embedding_backward_source(const Embedding& spec, bool join) {
  KernelSource source =
      pointwise_source(join ? "EmbeddingJoin" : "EmbeddingSegments", join ? "embedding_join" : "embedding_segments",
                       {{"using Storage", storage_type(spec.storage)},
                        {"constexpr bool kAdd", spec.add},
                        {"constexpr int kAtOnce", at_once(spec)},
                        {"constexpr int kSegment", kSegment}});
  backward_plan(spec).add_to(source);
  return source;
}

EmbeddingForwardExecutable::EmbeddingForwardExecutable(Device& device, const Embedding& spec)
    : spec_(spec), plan_(forward_plan(spec)) {
  check_spec(spec);
  kernel_ = &Kernel::load(device, embedding_forward_source(spec));
}

void EmbeddingForwardExecutable::run(const EmbeddingForwardCall& call, StreamHandle stream) const {
  require_lengths(spec_.positions, call.lengths);
  if (spec_.positions.count() == 0) return;
  require_address(call.tokens, "tokens");
  require_aligned(call.table, spec_.alignment, "table");
  require_aligned(call.y, spec_.alignment, "y");
  EmbeddingForwardArguments arguments{};
  arguments.tokens = device_pointer<const int>(call.tokens);
  arguments.lengths = device_pointer<const long long>(call.lengths);
  arguments.table = device_pointer<const char>(call.table);
  arguments.y = device_pointer<char>(call.y);
  arguments.positions = spec_.positions.count();
  arguments.steps = static_cast<int>(spec_.positions.steps);
  arguments.vocabulary = static_cast<int>(spec_.vocabulary);
  kernel_->launch(blocks_for(arguments.positions, plan_.rows_of_block()), static_cast<unsigned>(plan_.threads),
                  arguments, stream);
}

EmbeddingBackwardExecutable::EmbeddingBackwardExecutable(Device& device, const Embedding& spec)
    : device_(&device), spec_(spec), plan_(backward_plan(spec)) {
  check_spec(spec);
  const Index count = spec.positions.count();
  const int bits = bits_of(spec.vocabulary);
  passes_ = (bits + kMostBits - 1) / kMostBits;
  bits_ = (bits + passes_ - 1) / passes_;
  chunks_ = (count + kChunk - 1) / kChunk;
  segments_ = (count + kSegment - 1) / kSegment;
  for (const bool later : {false, true}) {
    count_[later] = &Kernel::load(device, sort_source(SortPart::count, !later, bits_));
    scatter_[later] = &Kernel::load(device, sort_source(SortPart::scatter, !later, bits_));
  }
  scan_ = &Kernel::load(device, sort_source(SortPart::scan, true, bits_));
  segment_ = &Kernel::load(device, embedding_backward_source(spec, false));
  join_ = &Kernel::load(device, embedding_backward_source(spec, true));
}

// The workspace: positions as one pass leaves them, and as the next does; counts of digits; partial sums.
std::size_t EmbeddingBackwardExecutable::workspace_bytes() const {
  const Index positions = in_blocks(spec_.positions.count() * Index{sizeof(TokenPosition)});
  return static_cast<std::size_t>(2 * positions + in_blocks((Index{4} << bits_) * chunks_) +
                                  segments_ * 2 * spec_.width * 4);
}

DeviceAddress EmbeddingBackwardExecutable::sort(const EmbeddingBackwardCall& call, DeviceAddress workspace,
                                                StreamHandle stream) const {
  const Index bytes = in_blocks(spec_.positions.count() * Index{sizeof(TokenPosition)});
  const DeviceAddress places[] = {workspace, workspace + static_cast<DeviceAddress>(bytes)};
  SortArguments arguments{};
  arguments.tokens = device_pointer<const int>(call.tokens);
  arguments.lengths = device_pointer<const long long>(call.lengths);
  arguments.counts = device_pointer<unsigned>(workspace + static_cast<DeviceAddress>(2 * bytes));
  arguments.positions = spec_.positions.count();
  arguments.steps = static_cast<int>(spec_.positions.steps);
  arguments.vocabulary = static_cast<int>(spec_.vocabulary);
  arguments.chunks = static_cast<int>(chunks_);
  const auto blocks = static_cast<unsigned>(chunks_);
  for (int pass = 0; pass < passes_; ++pass) {
    arguments.from = device_pointer<const TokenPosition>(places[(pass + 1) % 2]);
    arguments.to = device_pointer<TokenPosition>(places[pass % 2]);
    arguments.shift = pass * bits_;
    count_[pass > 0]->launch(blocks, kChunk, arguments, stream);
    scan_->launch(1, kChunk, arguments, stream);
    scatter_[pass > 0]->launch(blocks, kChunk, arguments, stream);
  }
  return places[(passes_ + 1) % 2];
}

void EmbeddingBackwardExecutable::run(const EmbeddingBackwardCall& call, DeviceAddress workspace,
                                      StreamHandle stream) const {
  require_lengths(spec_.positions, call.lengths);
  require_aligned(call.gradient, spec_.alignment, "gradient");
  const Index count = spec_.positions.count();
  if (!spec_.add) {
    device_->make_current();
    check(driver().fill_bytes(call.gradient, 0, static_cast<std::size_t>(4 * spec_.vocabulary * spec_.width), stream),
          "clearing the gradient of an embedding");
  }
  if (count == 0) return;
  require_address(call.tokens, "tokens");
  require_aligned(call.dy, spec_.alignment, "dy");
  require_aligned(workspace, kAlignment, "workspace");
  EmbeddingBackwardArguments arguments{};
  arguments.sorted = device_pointer<const TokenPosition>(sort(call, workspace, stream));
  arguments.dy = device_pointer<const char>(call.dy);
  arguments.gradient = device_pointer<float>(call.gradient);
  const Index before = 2 * in_blocks(count * Index{sizeof(TokenPosition)}) + in_blocks((Index{4} << bits_) * chunks_);
  arguments.partial = device_pointer<float>(workspace + static_cast<DeviceAddress>(before));
  arguments.positions = count;
  arguments.vocabulary = static_cast<int>(spec_.vocabulary);
  arguments.segments = static_cast<int>(segments_);
  const unsigned blocks = blocks_for(segments_, plan_.rows_of_block());
  segment_->launch(blocks, static_cast<unsigned>(plan_.threads), arguments, stream);
  join_->launch(blocks, static_cast<unsigned>(plan_.threads), arguments, stream);
}

}  // namespace penstock::cuda
