#include "network/maps.h"

#include <algorithm>
#include <cstring>

namespace penstock::network {

namespace {

/// n: rank of the loop, extents, then for each axis the offsets of its positions. The innermost axis lies in runs.
void run_maps(const Step& step, const Memory& memory) {
  const Index* n = step.n.data();
  const auto rank = static_cast<std::size_t>(n[0]);
  const std::size_t size = size_of(step.write_type(0));
  const std::byte* x = step.read(0, memory);
  std::byte* y = step.write(0, memory);
  const std::byte zero[8] = {};
  const std::byte* pad = step.variant != 0 ? step.read(2, memory) : zero;
  const Index* map[kMostAxes];
  const Index* next = n + 1 + rank;
  for (std::size_t a = 0; a < rank; ++a) map[a] = next, next += n[1 + a];
  Index counter[kMostAxes] = {};
  for (;;) {
    Index base = 0;
    bool inside = true;
    for (std::size_t a = 0; a + 1 < rank; ++a) inside = inside && map[a][counter[a]] >= 0, base += map[a][counter[a]];
    const Index* row = map[rank - 1];
    const Index length = n[rank];
    for (Index i = 0; i < length; y += size, ++i) {
      std::memcpy(y, inside && row[i] >= 0 ? x + (base + row[i]) * static_cast<Index>(size) : pad, size);
    }
    Index axis = static_cast<Index>(rank) - 2;
    for (; axis >= 0 && ++counter[axis] == n[1 + axis]; --axis) counter[axis] = 0;
    if (axis < 0) return;
  }
}

}  // namespace

void take_from(Preparation& p, const AxisMaps& maps, bool padded_by_read) {
  const Shape strides = strides_of(p.shape(0));
  Step& step = p.run(&run_maps);
  step.variant = padded_by_read ? 1 : 0;
  step.n.push_back(std::max<Index>(p.rank(0), 1));
  for (const std::vector<Index>& map : maps) step.n.push_back(static_cast<Index>(map.size()));
  for (std::size_t axis = 0; axis < maps.size(); ++axis) {
    for (const Index from : maps[axis]) step.n.push_back(from < 0 ? -1 : from * strides[axis]);
  }
  if (maps.empty()) step.n.insert(step.n.end(), {1, 0});
}

}  // namespace penstock::network
