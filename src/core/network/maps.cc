#include "network/maps.h"

#include <algorithm>
#include <cstdint>

namespace penstock::network {

namespace {

/// n: rank of the loop, extents, then for each axis the offsets of its positions; at last the positions of the
/// innermost axis between which elements lie side by side.
template <class Element>
void run_maps(const Step& step, const Memory& memory) {
  const Index* n = step.n.data();
  const auto rank = static_cast<std::size_t>(n[0]);
  const auto* x = reinterpret_cast<const Element*>(step.read(0, memory));
  auto* y = reinterpret_cast<Element*>(step.write(0, memory));
  const Element pad = step.variant != 0 ? *reinterpret_cast<const Element*>(step.read(2, memory)) : Element{};
  const Index* map[kMostAxes];
  const Index* next = n + 1 + rank;
  for (std::size_t a = 0; a < rank; ++a) map[a] = next, next += n[1 + a];
  Index counter[kMostAxes] = {};
  for (;;) {
    Index base = 0;
    bool inside = true;
    for (std::size_t a = 0; a + 1 < rank; ++a) inside = inside && map[a][counter[a]] >= 0, base += map[a][counter[a]];
    const Index *row = map[rank - 1], length = n[rank], run = next[0], end = next[1];
    const auto some = [&](Index begin, Index last) {
      for (Index i = begin; i < last; ++i) y[i] = row[i] >= 0 ? x[base + row[i]] : pad;
    };
    if (inside) {
      some(0, run);
      if (run < end) std::copy_n(x + base + row[run], end - run, y + run);
      some(end, length);
    } else {
      std::fill_n(y, length, pad);
    }
    y += length;
    Index axis = static_cast<Index>(rank) - 2;
    for (; axis >= 0 && ++counter[axis] == n[1 + axis]; --axis) counter[axis] = 0;
    if (axis < 0) return;
  }
}

}  // namespace

void take_from(Preparation& p, const AxisMaps& maps, bool padded_by_read) {
  const Shape strides = strides_of(p.shape(0));
  const std::size_t size = size_of(p.type(0));
  Step& step = p.run(size == 1   ? &run_maps<std::uint8_t>
                     : size == 4 ? &run_maps<std::uint32_t>
                                 : &run_maps<std::uint64_t>);
  step.variant = padded_by_read ? 1 : 0;
  step.n.push_back(std::max<Index>(p.rank(0), 1));
  for (const std::vector<Index>& map : maps) step.n.push_back(static_cast<Index>(map.size()));
  for (std::size_t axis = 0; axis < maps.size(); ++axis) {
    for (const Index from : maps[axis]) step.n.push_back(from < 0 ? -1 : from * strides[axis]);
  }
  if (maps.empty()) step.n.insert(step.n.end(), {1, 0});
  const std::vector<Index> row = maps.empty() ? std::vector<Index>{0} : maps.back();
  const auto length = static_cast<Index>(row.size());
  Index begin = 0, end = 0, best_begin = 0, best_end = 0;
  for (begin = 0; begin < length; begin = std::max(begin + 1, end)) {
    end = begin;
    while (end < length && row[end] >= 0 && row[end] == row[begin] + end - begin) ++end;
    if (end - begin > best_end - best_begin) best_begin = begin, best_end = end;
  }
  step.n.insert(step.n.end(), {best_begin, best_end});
}

}  // namespace penstock::network
