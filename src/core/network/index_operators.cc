// Operators that choose elements by number. A number that is known must exist; one that follows from the inputs takes
// the nearest element if it does not, since a run cannot fail.

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>

#include "network/preparation.h"

namespace penstock::network {

namespace {

/// An index that may count from the end.
Index chosen(Index index, Index extent) { return std::clamp<Index>(index < 0 ? index + extent : index, 0, extent - 1); }

Status check_indices(const Preparation& p, std::size_t i, Index extent) {
  PENSTOCK_TRY(p.only(i, {Type::i32, Type::i64}));
  if (p.count(i) > 0 && extent == 0) return p.refuse("it chooses from an axis without elements");
  if (p.known(i) == nullptr) return {};
  for (Index k = 0; k < p.count(i); ++k) {
    const Index index = integer_at(p.type(i), p.known(i), k);
    if (index < -extent || index >= extent) {
      return p.refuse("index " + text_of(index) + " does not exist on an axis of " + text_of(extent));
    }
  }
  return {};
}

/// n: blocks, extent of the axis, bytes of an element of it, number of indices.
void run_gather(const Step& step, const Memory& memory) {
  const auto [blocks, extent, bytes, count] = std::tuple(step.n[0], step.n[1], step.n[2], step.n[3]);
  const std::byte* x = step.read(0, memory);
  std::byte* y = step.write(0, memory);
  for (Index block = 0; block < blocks; ++block) {
    for (Index i = 0; i < count; ++i, y += bytes) {
      const Index index = chosen(integer_at(step.read_type(1), step.read(1, memory), i), extent);
      std::memcpy(y, x + (block * extent + index) * bytes, static_cast<std::size_t>(bytes));
    }
  }
}

Status prepare_gather(Preparation& p) {
  Index axis = 0;
  PENSTOCK_TRY(p.axis(0, p.rank(0), axis));
  const Shape& x = p.shape(0);
  PENSTOCK_TRY(check_indices(p, 1, x[axis]));
  Shape shape(x.begin(), x.begin() + axis);
  shape.insert(shape.end(), p.shape(1).begin(), p.shape(1).end());
  shape.insert(shape.end(), x.begin() + axis + 1, x.end());
  PENSTOCK_TRY(p.write(0, p.type(0), shape));
  const Index blocks = elements(x, 0, axis);
  const Index bytes = elements(x, axis + 1) * static_cast<Index>(size_of(p.type(0)));
  if (blocks == 1 && p.count(1) == 1 && p.known(1) != nullptr) {
    p.view(0, static_cast<std::size_t>(chosen(integer_at(p.type(1), p.known(1), 0), x[axis]) * bytes));
    return {};
  }
  p.run(&run_gather).n = {blocks, x[axis], bytes, p.count(1)};
  return {};
}

/// n: extent, number of elements of y along the axis, elements of x and of y behind it; the loop goes over y (0) and x
/// (1), which has no stride along the axis.
void run_gather_elements(const Step& step, const Memory& memory) {
  const std::size_t size = size_of(step.read_type(0));
  const Index extent = step.n[0], x_stride = step.n[1];
  const bool scatters = step.variant != 0;
  const std::size_t indices = 1;
  if (scatters) std::memcpy(step.write(0, memory), step.read(0, memory), static_cast<std::size_t>(step.n[2]) * size);
  step.loops[0].rows([&](const StridedLoop::Strides& at) {
    for (Index i = 0; i < step.loops[0].inner(); ++i) {
      const Index y = at[0] + i * step.loops[0].inner_stride(0), x = at[1] + i * step.loops[0].inner_stride(1);
      const Index index = chosen(integer_at(step.read_type(indices), step.read(indices, memory), y), extent);
      const auto whole = static_cast<Index>(size) * (x + index * x_stride), part = static_cast<Index>(size) * y;
      if (scatters) {
        std::memcpy(step.write(0, memory) + whole, step.read(2, memory) + part, size);
      } else {
        std::memcpy(step.write(0, memory) + part, step.read(0, memory) + whole, size);
      }
    }
  });
}

/// GatherElements, and ScatterElements (variant 1).
Status prepare_gather_elements(Preparation& p) {
  Index axis = 0;
  PENSTOCK_TRY(p.axis(0, p.rank(0), axis));
  PENSTOCK_TRY(check_indices(p, 1, p.shape(0)[axis]));
  bool fits = p.rank(1) == p.rank(0);
  for (Index i = 0; fits && i < p.rank(0); ++i) fits = i == axis || p.shape(1)[i] <= p.shape(0)[i];
  if (!fits) return p.refuse("indices of shape " + text_of(p.shape(1)) + " do not fit " + text_of(p.shape(0)));
  const bool scatters = p.variant() != 0;
  if (scatters && (p.shape(2) != p.shape(1) || p.type(2) != p.type(0))) {
    return p.refuse("updates must have the type of the data and the shape of the indices");
  }
  if (p.text("reduction", "none") != "none") return p.unsupported("'reduction' other than none");
  PENSTOCK_TRY(p.write(0, p.type(0), scatters ? p.shape(0) : p.shape(1)));
  Step& step = p.run(&run_gather_elements);
  const Shape of_x = strides_of(p.shape(0)), of_y = strides_of(p.shape(1));
  step.loops.resize(1);
  for (Index i = 0; i < p.rank(1); ++i) step.loops[0].add(p.shape(1)[i], {of_y[i], i == axis ? 0 : of_x[i], 0, 0});
  step.n = {p.shape(0)[axis], of_x[axis], p.count(0)};
  step.variant = p.variant();
  return {};
}

/// n: batches, elements of x in one, tuples in one, length of a tuple, elements that a tuple names, those of x; then
/// extent and stride of each axis of a tuple.
void run_gather_nd(const Step& step, const Memory& memory) {
  const Index* n = step.n.data();
  const auto size = static_cast<Index>(size_of(step.read_type(0)));
  const Index inner = n[4] * size;
  const bool scatters = step.variant != 0;
  if (scatters) std::memcpy(step.write(0, memory), step.read(0, memory), static_cast<std::size_t>(n[5] * size));
  for (Index tuple = 0; tuple < n[0] * n[2]; ++tuple) {
    Index at = tuple / n[2] * n[1];
    for (Index k = 0; k < n[3]; ++k) {
      const Index index = integer_at(step.read_type(1), step.read(1, memory), tuple * n[3] + k);
      at += chosen(index, n[6 + 2 * k]) * n[7 + 2 * k];
    }
    if (scatters) {
      std::memcpy(step.write(0, memory) + at * size, step.read(2, memory) + tuple * inner,
                  static_cast<std::size_t>(inner));
    } else {
      std::memcpy(step.write(0, memory) + tuple * inner, step.read(0, memory) + at * size,
                  static_cast<std::size_t>(inner));
    }
  }
}

/// GatherND, and ScatterND (variant 1).
Status prepare_gather_nd(Preparation& p) {
  PENSTOCK_TRY(p.only(1, {Type::i32, Type::i64}));
  const bool scatters = p.variant() != 0;
  const Index batch = scatters ? 0 : p.integer("batch_dims", 0), rank = p.rank(0);
  if (p.rank(1) < 1 || batch < 0 || batch >= p.rank(1) || batch + p.extent(1, -1) > rank || p.extent(1, -1) < 1) {
    return p.refuse("indices of shape " + text_of(p.shape(1)) + " do not fit a tensor of shape " + text_of(p.shape(0)));
  }
  if (p.text("reduction", "none") != "none") return p.unsupported("'reduction' other than none");
  const Index length = p.extent(1, -1);
  for (Index i = 0; i < batch; ++i) {
    if (p.shape(0)[i] != p.shape(1)[i]) return p.refuse("the first axes of the indices differ from those of the data");
  }
  Shape shape(p.shape(1).begin(), p.shape(1).end() - 1);
  shape.insert(shape.end(), p.shape(0).begin() + batch + length, p.shape(0).end());
  if (scatters && (p.shape(2) != shape || p.type(2) != p.type(0))) {
    return p.refuse("updates must have shape " + text_of(shape) + ", not " + text_of(p.shape(2)));
  }
  PENSTOCK_TRY(p.write(0, p.type(0), scatters ? p.shape(0) : shape));
  Step& step = p.run(&run_gather_nd);
  step.variant = p.variant();
  const Shape strides = strides_of(p.shape(0));
  const Index batches = elements(p.shape(0), 0, batch);
  const Index tuples = elements(p.shape(1), batch, p.shape(1).size() - 1);
  step.n = {batches, elements(p.shape(0), batch), tuples, length, elements(p.shape(0), batch + length), p.count(0)};
  for (Index k = batch; k < batch + length; ++k) {
    if (p.shape(0)[k] == 0 && p.count(1) > 0) return p.refuse("it chooses from an axis without elements");
    step.n.insert(step.n.end(), {p.shape(0)[k], strides[k]});
  }
  return {};
}

/// n: blocks, depth, elements behind the axis.
void run_one_hot(const Step& step, const Memory& memory) {
  const std::size_t size = size_of(step.write_type(0));
  const auto bytes = static_cast<Index>(size);
  std::byte* y = step.write(0, memory);
  const Index depth = step.n[1], inner = step.n[2];
  for (Index block = 0; block < step.n[0]; ++block) {
    for (Index k = 0; k < depth * inner; ++k, y += bytes) {
      Index index = integer_at(step.read_type(0), step.read(0, memory), block * inner + k % inner);
      if (index < 0) index += depth;
      std::memcpy(y, step.read(2, memory) + (index == k / inner ? bytes : 0), size);
    }
  }
}

Status prepare_one_hot(Preparation& p) {
  std::vector<Index> depth;
  Index axis = 0;
  PENSTOCK_TRY(p.known_integers(1, "'depth'", depth));
  PENSTOCK_TRY(p.axis(-1, p.rank(0) + 1, axis));
  if (depth.size() != 1 || depth[0] < 1 || p.count(2) != 2) return p.refuse("it needs one depth and two values");
  Shape shape = p.shape(0);
  shape.insert(shape.begin() + axis, depth[0]);
  PENSTOCK_TRY(p.write(0, p.type(2), shape));
  p.run(&run_one_hot).n = {elements(shape, 0, axis), depth[0], elements(shape, axis + 1)};
  return {};
}

Status prepare_non_zero(Preparation& p) {
  if (p.known(0) == nullptr) {
    return p.unsupported(
        "how many elements are not zero depends on the inputs, so the shape of the result is not known "
        "before a run; it is supported for constants only");
  }
  const Index rank = std::max<Index>(p.rank(0), 1);
  Shape shape = p.shape(0);
  if (shape.empty()) shape = {1};
  const Shape strides = strides_of(shape);
  std::vector<Index> places, result;
  for (Index i = 0; i < p.count(0); ++i) {
    if (real_at(p.type(0), p.known(0), i) != 0) places.push_back(i);
  }
  for (Index k = 0; k < rank; ++k) {
    for (const Index place : places) result.push_back(place / strides[k] % shape[k]);
  }
  p.give(std::move(result));
  return p.write(0, Type::i64, {rank, static_cast<Index>(places.size())});
}

/// n: rows, columns, diagonal, 1 for the upper triangle, matrices.
void run_trilu(const Step& step, const Memory& memory) {
  const Index* n = step.n.data();
  const std::size_t size = size_of(step.write_type(0));
  const auto bytes = static_cast<Index>(size);
  std::memcpy(step.write(0, memory), step.read(0, memory), static_cast<std::size_t>(n[0] * n[1] * n[4] * bytes));
  for (Index row = 0; row < n[0] * n[4]; ++row) {
    for (Index column = 0; column < n[1]; ++column) {
      const Index from_diagonal = column - row % n[0] - n[2];
      const bool kept = n[3] != 0 ? from_diagonal >= 0 : from_diagonal <= 0;
      if (!kept) std::memset(step.write(0, memory) + (row * n[1] + column) * bytes, 0, size);
    }
  }
}

Status prepare_trilu(Preparation& p) {
  std::vector<Index> diagonal = {0};
  if (p.has(1)) PENSTOCK_TRY(p.known_integers(1, "'k'", diagonal));
  if (p.rank(0) < 2 || diagonal.size() != 1) return p.refuse("it needs matrices, not shape " + text_of(p.shape(0)));
  PENSTOCK_TRY(p.write(0, p.type(0), p.shape(0)));
  const Index rows = p.extent(0, -2), columns = p.extent(0, -1);
  const Index k = std::clamp(diagonal[0], -rows - columns, rows + columns);
  p.run(&run_trilu).n = {rows, columns, k, p.integer("upper", 1), elements(p.shape(0), 0, p.shape(0).size() - 2)};
  return {};
}

/// n: blocks, extent, elements behind the axis, 1 if exclusive, 1 if from the end.
void run_cumulative_sum(const Step& step, const Memory& memory) {
  const Index* n = step.n.data();
  const Type type = step.read_type(0);
  const std::byte* x = step.read(0, memory);
  std::byte* y = step.write(0, memory);
  for (Index line = 0; line < n[0] * n[2]; ++line) {
    double real = 0;
    Index whole = 0;
    for (Index k = 0; k < n[1]; ++k) {
      const Index at = (line / n[2] * n[1] + (n[4] != 0 ? n[1] - 1 - k : k)) * n[2] + line % n[2];
      const double before = real;
      const Index whole_before = whole;
      if (is_real(type)) {
        real += real_at(type, x, at);
        set_real(type, y, at, n[3] != 0 ? before : real);
      } else {
        // Wraps around, as unsigned numbers do.
        whole =
            static_cast<Index>(static_cast<std::uint64_t>(whole) + static_cast<std::uint64_t>(integer_at(type, x, at)));
        set_integer(type, y, at, n[3] != 0 ? whole_before : whole);
      }
    }
  }
}

Status prepare_cumulative_sum(Preparation& p) {
  std::vector<Index> axis;
  PENSTOCK_TRY(p.known_integers(1, "'axis'", axis));
  if (axis.size() != 1 || !normalise_axis(axis[0], p.rank(0))) return p.refuse("'axis' does not exist");
  PENSTOCK_TRY(p.write(0, p.type(0), p.shape(0)));
  p.run(&run_cumulative_sum).n = {elements(p.shape(0), 0, axis[0]), p.shape(0)[axis[0]],
                                  elements(p.shape(0), axis[0] + 1), p.integer("exclusive", 0),
                                  p.integer("reverse", 0)};
  return {};
}

/// n: blocks, extent, elements behind the axis, k, 1 for the largest.
void run_top_k(const Step& step, const Memory& memory) {
  const Index* n = step.n.data();
  const Type type = step.read_type(0);
  const std::byte* x = step.read(0, memory);
  auto* order = reinterpret_cast<Index*>(step.spare(memory));
  for (Index line = 0; line < n[0] * n[2]; ++line) {
    const auto at = [&](Index k, Index length) { return (line / n[2] * length + k) * n[2] + line % n[2]; };
    std::iota(order, order + n[1], Index{0});
    std::partial_sort(order, order + n[3], order + n[1], [&](Index a, Index b) {
      const double va = real_at(type, x, at(a, n[1])), vb = real_at(type, x, at(b, n[1]));
      if (va != vb && !(va != va && vb != vb)) return n[4] != 0 ? va > vb || va != va : va < vb || va != va;
      return a < b;
    });
    for (Index k = 0; k < n[3]; ++k) {
      const auto size = static_cast<Index>(size_of(type));
      std::memcpy(step.write(0, memory) + at(k, n[3]) * size, x + at(order[k], n[1]) * size, size_of(type));
      if (step.writes.size() > 1) set_integer(Type::i64, step.write(1, memory), at(k, n[3]), order[k]);
    }
  }
}

Status prepare_top_k(Preparation& p) {
  std::vector<Index> k;
  Index axis = 0;
  PENSTOCK_TRY(p.known_integers(1, "'k'", k));
  PENSTOCK_TRY(p.axis(-1, p.rank(0), axis));
  Shape shape = p.shape(0);
  const Index extent = shape[axis];
  if (k.size() != 1 || k[0] < 0 || k[0] > extent) {
    return p.refuse("'k' must be from 0 to the extent of the axis, " + text_of(extent));
  }
  shape[axis] = k[0];
  PENSTOCK_TRY(p.write(0, p.type(0), shape));
  PENSTOCK_TRY(p.write(1, Type::i64, shape));
  p.run(&run_top_k, static_cast<std::size_t>(extent) * sizeof(Index)).n = {
      elements(shape, 0, axis), extent, elements(shape, axis + 1), k[0], p.integer("largest", 1)};
  return {};
}

/// n: positions and their stride, sequences and their stride, elements of one position, each in bytes.
void run_reverse_sequence(const Step& step, const Memory& memory) {
  const auto [steps, step_bytes, rows, row_bytes, bytes] =
      std::tuple(step.n[0], step.n[1], step.n[2], step.n[3], step.n[4]);
  for (Index row = 0; row < rows; ++row) {
    const Index stated = integer_at(step.read_type(1), step.read(1, memory), row),
                length = std::clamp<Index>(stated, 0, steps);
    for (Index t = 0; t < steps; ++t) {
      const Index from = t < length ? length - 1 - t : t;
      std::memcpy(step.write(0, memory) + row * row_bytes + t * step_bytes,
                  step.read(0, memory) + row * row_bytes + from * step_bytes, static_cast<std::size_t>(bytes));
    }
  }
}

Status prepare_reverse_sequence(Preparation& p) {
  const Index time = p.integer("time_axis", 0), batch = p.integer("batch_axis", 1);
  if (p.rank(0) < 2 || time + batch != 1 || time * batch != 0) {
    return p.refuse("'time_axis' and 'batch_axis' must be 0 and 1 or 1 and 0, of an input with two axes or more");
  }
  PENSTOCK_TRY(p.only(1, {Type::i64, Type::i32}));
  if (p.shape(1) != Shape{p.shape(0)[batch]}) {
    return p.refuse("lengths of shape " + text_of(p.shape(1)) + " do not fit an input of shape " + text_of(p.shape(0)));
  }
  PENSTOCK_TRY(p.write(0, p.type(0), p.shape(0)));
  const Index bytes = elements(p.shape(0), 2) * static_cast<Index>(size_of(p.type(0)));
  const auto stride = [&](Index axis) { return axis == 0 ? p.shape(0)[1] * bytes : bytes; };
  p.run(&run_reverse_sequence).n = {p.shape(0)[time], stride(time), p.shape(0)[batch], stride(batch), bytes};
  return {};
}

}  // namespace

Operators index_operators() {
  static constexpr Operator operators[] = {
      {"Gather", prepare_gather, 2, 2},
      {"GatherElements", prepare_gather_elements, 2, 2, 0},
      {"ScatterElements", prepare_gather_elements, 3, 3, 1},
      {"GatherND", prepare_gather_nd, 2, 2, 0},
      {"ScatterND", prepare_gather_nd, 3, 3, 1},
      {"OneHot", prepare_one_hot, 3, 3},
      {"NonZero", prepare_non_zero, 1, 1},
      {"Trilu", prepare_trilu, 1, 2},
      {"CumSum", prepare_cumulative_sum, 2, 2},
      {"TopK", prepare_top_k, 2, 2},
      {"ReverseSequence", prepare_reverse_sequence, 2, 2},
  };
  return operators;
}

}  // namespace penstock::network
