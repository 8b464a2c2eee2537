// Operators that say what a shape is, or give the same elements another one: they cost nothing in a run.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "network/preparation.h"

namespace penstock::network {

namespace {

/// The elements of read 0 as they are.
Status same_elements(Preparation& p, Shape shape) {
  if (elements(shape) != p.count(0)) {
    return p.refuse("a tensor of shape " + text_of(p.shape(0)) + " cannot have shape " + text_of(shape));
  }
  PENSTOCK_TRY(p.write(0, p.type(0), std::move(shape)));
  p.view(0);
  return {};
}

Status prepare_identity(Preparation& p) { return same_elements(p, p.shape(0)); }

Status prepare_shape(Preparation& p) {
  const Index rank = p.rank(0);
  const auto bounded = [&](Index at) { return std::clamp<Index>(at < 0 ? at + rank : at, 0, rank); };
  const Index start = bounded(p.integer("start", 0)), end = bounded(p.integer("end", rank));
  std::vector<Index> extents;
  for (Index i = start; i < end; ++i) extents.push_back(p.shape(0)[i]);
  p.give(extents);
  return p.write(0, Type::i64, {static_cast<Index>(extents.size())});
}

Status prepare_size(Preparation& p) {
  p.give({p.count(0)});
  return p.write(0, Type::i64, {});
}

Status prepare_reshape(Preparation& p) {
  std::vector<Index> shape;
  PENSTOCK_TRY(p.known_integers(1, "the new shape", shape));
  const bool keeps_zero = p.integer("allowzero", 0) != 0;
  Index rest = -1, product = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && !keeps_zero) {
      if (static_cast<Index>(i) >= p.rank(0)) return p.refuse("the new shape copies an axis that the input lacks");
      shape[i] = p.shape(0)[i];
    }
    if (shape[i] == -1) {
      if (rest >= 0) return p.refuse("the new shape " + text_of(shape) + " leaves two extents open");
      rest = static_cast<Index>(i);
    } else if (shape[i] < 0 || (shape[i] > 0 && product > kMostBytes / shape[i])) {
      return p.refuse("the new shape " + text_of(shape) + " is not a shape");
    } else {
      product *= shape[i];
    }
  }
  if (rest >= 0) shape[rest] = product == 0 ? 0 : p.count(0) / product;
  return same_elements(p, shape);
}

Status prepare_flatten(Preparation& p) {
  const Index rank = p.rank(0);
  Index axis = p.integer("axis", 1);
  if (axis < -rank || axis > rank) {
    return p.refuse("axis " + text_of(axis) + " does not exist: there are " + text_of(rank) + " axes");
  }
  if (axis < 0) axis += rank;
  const Index rows = elements(p.shape(0), 0, axis);
  return same_elements(p, {rows, elements(p.shape(0), axis)});
}

Status prepare_squeeze(Preparation& p) {
  std::vector<Index> axes;
  PENSTOCK_TRY(p.known_axes(1, p.rank(0), axes));
  const bool all = !p.has(1) && axes.empty();
  Shape shape;
  for (Index i = 0; i < p.rank(0); ++i) {
    const Index extent = p.shape(0)[i];
    const bool named = std::ranges::find(axes, i) != axes.end();
    if (named && extent != 1) {
      return p.refuse("axis " + text_of(i) + " of shape " + text_of(p.shape(0)) + " cannot be squeezed: it is not 1");
    }
    if (!(named || (all && extent == 1))) shape.push_back(extent);
  }
  return same_elements(p, shape);
}

Status prepare_unsqueeze(Preparation& p) {
  std::vector<Index> axes;
  if (p.has(1)) PENSTOCK_TRY(p.known_integers(1, "'axes'", axes));
  const Index rank = p.rank(0) + (p.has(1) ? static_cast<Index>(axes.size()) : 0);
  PENSTOCK_TRY(p.known_axes(1, rank, axes));
  Shape shape;
  Index next = 0;
  for (Index i = 0; i < rank; ++i) {
    shape.push_back(std::ranges::find(axes, i) != axes.end() ? 1 : p.shape(0)[next++]);
  }
  return same_elements(p, shape);
}

void run_cast(const Step& step, const Memory& memory) {
  convert(step.read_type(0), step.read(0, memory), step.write_type(0), step.write(0, memory), step.n[0]);
}

/// ONNX's number of a type: of those that there are here.
bool type_of_number(Index number, Type& type) {
  constexpr std::pair<Index, Type> known[] = {{1, Type::f32}, {2, Type::u8},      {3, Type::i8},  {6, Type::i32},
                                              {7, Type::i64}, {9, Type::boolean}, {11, Type::f64}};
  const auto* const found = std::ranges::find(known, number, &std::pair<Index, Type>::first);
  if (found == std::end(known)) return false;
  type = found->second;
  return true;
}

Status prepare_cast(Preparation& p) {
  Type type = Type::f32;
  if (p.variant() != 0) {
    type = p.type(1);
  } else if (const Index number = p.integer("to", 1); !type_of_number(number, type)) {
    return p.unsupported("to type number " + text_of(number) +
                         " of ONNX; supported: float, double, int8, uint8, int32, int64 and bool");
  }
  PENSTOCK_TRY(p.write(0, type, p.shape(0)));
  if (type == p.type(0)) {
    p.view(0);
    return {};
  }
  p.run(&run_cast).n = {p.count(0)};
  return {};
}

void run_range(const Step& step, const Memory& memory) {
  const Type type = step.write_type(0);
  std::byte* y = step.write(0, memory);
  for (Index i = 0; i < step.n[0]; ++i) {
    if (is_real(type)) {
      const double start = real_at(type, step.read(0, memory), 0), delta = real_at(type, step.read(2, memory), 0);
      set_real(type, y, i, start + static_cast<double>(i) * delta);
    } else {
      set_integer(type, y, i,
                  integer_at(type, step.read(0, memory), 0) + i * integer_at(type, step.read(2, memory), 0));
    }
  }
}

Status prepare_range(Preparation& p) {
  PENSTOCK_TRY(p.same_types(0, 3));
  double start = 0, limit = 0, delta = 0;
  PENSTOCK_TRY(p.known_number(0, "'start'", start));
  PENSTOCK_TRY(p.known_number(1, "'limit'", limit));
  PENSTOCK_TRY(p.known_number(2, "'delta'", delta));
  const double steps = std::ceil((limit - start) / delta);
  if (!(delta != 0) || !(steps < 1e15)) return p.refuse("'delta' is 0, or the range has no end");
  const Index count = std::max<Index>(0, static_cast<Index>(std::max(steps, 0.0)));
  PENSTOCK_TRY(p.write(0, p.type(0), {count}));
  p.run(&run_range).n = {count};
  return {};
}

void run_eye(const Step& step, const Memory& memory) {
  std::memset(step.write(0, memory), 0, static_cast<std::size_t>(step.n[0]) * size_of(step.write_type(0)));
  for (Index i = 0; i < step.n[1]; ++i) {
    const Index column = i + step.n[3];
    if (column >= 0 && column < step.n[2])
      set_integer(step.write_type(0), step.write(0, memory), i * step.n[2] + column, 1);
  }
}

Status prepare_eye_like(Preparation& p) {
  if (p.rank(0) != 2) return p.refuse("the input must have two axes, not shape " + text_of(p.shape(0)));
  Type type = p.type(0);
  if (p.node().find("dtype") != nullptr && !type_of_number(p.integer("dtype", 0), type)) {
    return p.unsupported("'dtype' is a type that this library does not have");
  }
  PENSTOCK_TRY(p.write(0, type, p.shape(0)));
  p.run(&run_eye).n = {p.count(0), p.extent(0, 0), p.extent(0, 1), p.integer("k", 0)};
  return {};
}

}  // namespace

Operators shape_operators() {
  static constexpr Operator operators[] = {
      {"Identity", prepare_identity, 1, 1}, {"Dropout", prepare_identity, 1, 3},    {"Shape", prepare_shape, 1, 1},
      {"Size", prepare_size, 1, 1},         {"Reshape", prepare_reshape, 2, 2},     {"Flatten", prepare_flatten, 1, 1},
      {"Squeeze", prepare_squeeze, 1, 2},   {"Unsqueeze", prepare_unsqueeze, 1, 2}, {"Cast", prepare_cast, 1, 1},
      {"CastLike", prepare_cast, 2, 2, 1},  {"Range", prepare_range, 3, 3},         {"EyeLike", prepare_eye_like, 1, 1},
  };
  return operators;
}

}  // namespace penstock::network
