#include "network/evaluate.h"

#include <cstring>
#include <new>

#include "base/memory_plan.h"

namespace penstock::network {

namespace {

constexpr std::size_t kMostKnownBytes = std::size_t{1} << 30;

}  // namespace

Status known_memory(std::size_t bytes, std::size_t& all, std::shared_ptr<const std::byte[]>& owner,
                    std::byte*& memory) {
  if (bytes > kMostKnownBytes || all + bytes > kMostKnownBytes) {
    return Status::unsupported("what is computed from constants alone takes more than 1 GiB");
  }
  all += bytes;
  const std::size_t room = aligned(bytes) + memory_alignment;
  auto* const begin = new (std::nothrow) std::byte[room];
  if (begin == nullptr) return Status::out_of_memory("there are no " + std::to_string(room) + " bytes of memory left");
  owner.reset(begin);
  memory = begin + (64 - reinterpret_cast<std::uintptr_t>(begin) % 64) % 64;
  return {};
}

Status evaluate(Preparation& node, const Kernels& kernels, std::size_t& all, std::shared_ptr<const std::byte[]>& memory,
                std::vector<const std::byte*>& results) {
  results.assign(node.results.size(), nullptr);
  if (node.viewed >= 0) {
    results[0] = node.known(node.viewed) + node.view_offset;
    return {};
  }
  std::size_t bytes = 0;
  Step& step = node.step;
  step.writes.clear();
  for (const Fact& fact : node.results) {
    step.writes.push_back({nullptr, bytes});
    bytes += aligned(bytes_of(fact.type, fact.shape));
  }
  const std::size_t scratch = bytes;
  std::byte* base = nullptr;
  PENSTOCK_TRY(known_memory(bytes + step.scratch_bytes, all, memory, base));
  all -= step.scratch_bytes;
  std::memset(base + scratch, 0, step.scratch_bytes);
  for (std::size_t i = 0; i < results.size(); ++i) results[i] = base + step.writes[i].offset;
  if (node.is_given) {
    for (std::size_t i = 0; i < node.given.size(); ++i) {
      set_integer(node.results[0].type, base, static_cast<Index>(i), node.given[i]);
    }
    return {};
  }
  for (std::size_t i = 0; i < node.reads(); ++i) {
    step.reads.push_back({node.known(i)});
    step.types.push_back(node.has(i) ? node.type(i) : Type::f32);
  }
  for (const Fact& fact : node.results) step.types.push_back(fact.type);
  step.scratch.offset = scratch;
  bool empty = true;
  for (const Fact& fact : node.results) empty = empty && elements(fact.shape) == 0;
  if (!empty && step.run != nullptr) step.run(step, {base, kernels});
  return {};
}

}  // namespace penstock::network
