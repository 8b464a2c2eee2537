// Einsum: its equation is read here and computed by contraction.h.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "network/contraction.h"
#include "network/preparation.h"

namespace penstock::network {
namespace {

/// The letters of one tensor in an equation; "..." stands for as many characters below ' ' as are needed.
Status expand(const Preparation& p, std::string_view text, Index rank, std::string& letters) {
  std::string plain;
  for (const char c : text) {
    if (c != ' ') plain += c;
  }
  letters.clear();
  for (std::size_t i = 0; i < plain.size(); ++i) {
    if (plain.compare(i, 3, "...") == 0) {
      const Index missing = rank - static_cast<Index>(plain.size() - 3);
      if (missing < 0 || missing > 12) return p.refuse("its equation has more axes than its inputs");
      for (Index k = missing; k > 0; --k) letters += static_cast<char>(' ' - k);
      i += 2;
    } else if ((plain[i] >= 'a' && plain[i] <= 'z') || (plain[i] >= 'A' && plain[i] <= 'Z')) {
      letters += plain[i];
    } else {
      return p.refuse("its equation has the character '" + std::string(1, plain[i]) + "'");
    }
  }
  return {};
}

/// The letters of each input, and of the result; without an arrow those that occur once, in order.
Status read_equation(const Preparation& p, std::string (&of)[3]) {
  const std::string_view equation = p.text("equation", "");
  const std::size_t arrow = equation.find("->");
  std::string_view left = equation.substr(0, arrow);
  const std::size_t comma = left.find(',');
  if ((comma == std::string_view::npos) != (p.reads() == 1)) {
    return p.unsupported("equation '" + std::string(equation) + "' with " + text_of(static_cast<Index>(p.reads())) +
                         " inputs; supported: one or two");
  }
  PENSTOCK_TRY(expand(p, left.substr(0, comma), p.rank(0), of[0]));
  if (p.reads() > 1) PENSTOCK_TRY(expand(p, left.substr(comma + 1), p.rank(1), of[1]));
  for (std::size_t i = 0; i < p.reads(); ++i) {
    if (static_cast<Index>(of[i].size()) != p.rank(i)) return p.refuse("its equation has other axes than its inputs");
  }
  if (arrow != std::string_view::npos) {
    const std::string_view right = equation.substr(arrow + 2);
    Index dots = 0;
    for (const char c : of[of[0].size() < of[1].size() ? 1 : 0]) dots += c < ' ' ? 1 : 0;
    const auto named = static_cast<Index>(std::ranges::count_if(right, [](char c) { return c != ' ' && c != '.'; }));
    return expand(p, right, named + (right.find("...") == std::string_view::npos ? 0 : dots), of[2]);
  }
  std::string all = of[0] + of[1];
  std::ranges::sort(all);
  for (const char c : all) {
    if (c < ' ' || std::ranges::count(all, c) == 1) {
      if (of[2].find(c) == std::string::npos) of[2] += c;
    }
  }

  return {};
}

Status prepare_einsum(Preparation& p) {
  for (std::size_t i = 0; i < p.reads(); ++i) PENSTOCK_TRY(p.only(i, {Type::f32}));
  std::string of[3];
  PENSTOCK_TRY(read_equation(p, of));
  const std::string equation = "equation '" + std::string(p.text("equation", "")) + "': ";
  for (const std::string& letters : of) {
    std::string sorted = letters;
    std::ranges::sort(sorted);
    if (std::ranges::adjacent_find(sorted) != sorted.end()) {
      return p.unsupported(equation + "an axis occurs twice in one tensor");
    }
  }
  const auto extent = [&](char letter) {
    Index largest = 1;
    for (std::size_t i = 0; i < p.reads(); ++i) {
      const std::size_t at = of[i].find(letter);
      if (at != std::string::npos && p.shape(i)[at] != 1) largest = p.shape(i)[at];
    }
    return largest;
  };
  Shape shape;
  for (const char c : of[2]) {
    if ((of[0] + of[1]).find(c) == std::string::npos) return p.refuse(equation + "the result has an axis of its own");
    shape.push_back(extent(c));
  }
  PENSTOCK_TRY(p.write(0, Type::f32, shape));
  std::vector<Letter> letters;
  std::string done;
  const Shape strides[3] = {strides_of(p.shape(0)), p.reads() > 1 ? strides_of(p.shape(1)) : Shape(),
                            strides_of(shape)};
  for (const char c : of[2] + of[0] + of[1]) {
    if (done.find(c) != std::string::npos) continue;
    done += c;
    Letter letter{extent(c)};
    const auto stride = [&](int tensor, bool& is_in) {
      const std::size_t at = of[tensor].find(c);
      is_in = at != std::string::npos;
      return !is_in || (tensor < 2 && p.shape(tensor)[at] == 1) ? 0 : strides[tensor][at];
    };
    letter.a = stride(0, letter.in_a), letter.b = stride(1, letter.in_b), letter.c = stride(2, letter.in_c);
    for (std::size_t i = 0; i < p.reads(); ++i) {
      const std::size_t at = of[i].find(c);
      if (at != std::string::npos && p.shape(i)[at] != letter.extent && p.shape(i)[at] != 1) {
        return p.refuse(equation + "an axis has extents " + text_of(letter.extent) + " and " + text_of(p.shape(i)[at]));
      }
    }
    if (!letter.in_c && (letter.in_a != letter.in_b) && letter.extent != 1) {
      return p.unsupported(equation + "a sum over an axis of one input alone; use ReduceSum before it");
    }
    if (letter.extent != 1) letters.push_back(letter);
  }
  if (p.reads() == 1) {
    StridedLoop loop;
    for (const Letter& letter : letters) loop.add(letter.extent, {letter.c, letter.a, 0, 0});
    p.run([](const Step& step, const Memory& memory) {
       copy(step.loops[0], sizeof(float), step.read(0, memory), step.write(0, memory));
     }).loops = {loop};
    return {};
  }
  contract(p, letters, p.known_floats(1));
  return {};
}

}  // namespace

Operators einsum_operator() {
  static constexpr Operator operators[] = {{"Einsum", prepare_einsum, 1, 2}};
  return operators;
}

}  // namespace penstock::network
