#include "bench/suite/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/check.h"

namespace penstock::bench {
namespace {

constexpr std::array<std::pair<Pass, std::string_view>, 3> pass_names = {
    {{Pass::forward, "forward"}, {Pass::training, "training"}, {Pass::step, "step"}}};

}  // namespace

std::string_view to_string(Pass pass) {
  return std::ranges::find(pass_names, pass, &std::pair<Pass, std::string_view>::first)->second;
}

Pass parse_pass(std::string_view text) {
  for (const auto& [pass, name] : pass_names) {
    if (name == text) return pass;
  }
  fail_argument({.argument = "passes", .value = std::string(text), .allowed = "among forward, training and step"},
                fmt::format("'{}'", text));
}

std::string to_string(const Shape& shape) {
  const std::string text = fmt::format("{}x{}x{}x{}", shape.rows, shape.steps, shape.inputs, shape.hidden);
  return shape.heads == 1 ? text : fmt::format("{}x{}", text, shape.heads);
}

Shape parse_shape(const std::string& text) {
  constexpr std::size_t fewest = 4;
  std::array<Index, 5> sizes = {1, 1, 1, 1, 1};
  const char* next = text.data();
  const char* const end = text.data() + text.size();
  for (std::size_t i = 0;; ++i) {
    const auto [after, error] = i < sizes.size() ? std::from_chars(next, end, sizes[i]) : std::from_chars_result{};
    const bool last = after == end && i + 1 >= fewest;
    if (i == sizes.size() || error != std::errc() || sizes[i] < 1 || (!last && (after == end || *after != 'x'))) {
      fail_argument({.argument = "shapes",
                     .value = std::string(text),
                     .allowed = "BxTxIxH, such as 16x200x256x256, or BxTxIxHxHEADS, each at least 1"},
                    fmt::format("'{}'", text));
    }
    if (last) return {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]};
    next = after + 1;
  }
}

std::string Case::label() const {
  if (on_gpu()) return fmt::format("{} {} {} {}, cuda", cell, to_string(shape), to_string(pass), dtype);
  return fmt::format("{} {} {} {}, {} thread{}", cell, to_string(shape), to_string(pass), dtype, threads,
                     threads == 1 ? "" : "s");
}

bool is_bare_scan(std::string_view cell) { return cell == "scan" || cell == "scan-log"; }

bool has_kink(std::string_view cell) { return !is_bare_scan(cell) && find_cell(cell).has_kink; }

}  // namespace penstock::bench
