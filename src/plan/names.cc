// Names of the public enumerations, and back.

#include <array>
#include <utility>

#include "base/check.h"
#include "penstock/types.h"

namespace penstock {
namespace {

template <class Enum, std::size_t n>
using Names = std::array<std::pair<Enum, std::string_view>, n>;

constexpr Names<Direction, 3> kDirections = {
    {{Direction::forward, "forward"}, {Direction::reverse, "reverse"}, {Direction::bidirectional, "bidirectional"}}};
constexpr Names<Bias, 3> kBiases = {{{Bias::none, "none"}, {Bias::single, "single"}, {Bias::both, "both"}}};
constexpr Names<Algorithm, 3> kAlgorithms = {
    {{Algorithm::automatic, "automatic"}, {Algorithm::sequential, "sequential"}, {Algorithm::scan, "scan"}}};
constexpr Names<Precision, 4> kPrecisions = {{{Precision::full, "full"},
                                              {Precision::bf16_weights, "bf16-weights"},
                                              {Precision::bf16, "bf16"},
                                              {Precision::f16, "f16"}}};

template <class Enum, std::size_t n>
std::string_view name_of(const Names<Enum, n>& names, Enum value) {
  for (const auto& [known, name] : names) {
    if (known == value) return name;
  }
  return "?";
}

template <class Enum, std::size_t n>
Enum parse(const Names<Enum, n>& names, std::string_view what, std::string_view text) {
  std::string known;
  for (const auto& [value, name] : names) {
    if (name == text) return value;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  fail(ErrorCode::invalid_argument, "{} must be one of {}, not '{}'", what, known, text);
}

}  // namespace

std::string_view to_string(Direction direction) { return name_of(kDirections, direction); }
std::string_view to_string(Bias bias) { return name_of(kBiases, bias); }
std::string_view to_string(Algorithm algorithm) { return name_of(kAlgorithms, algorithm); }
std::string_view to_string(Precision precision) { return name_of(kPrecisions, precision); }

Direction parse_direction(std::string_view text) { return parse(kDirections, "direction", text); }
Bias parse_bias(std::string_view text) { return parse(kBiases, "bias", text); }
Algorithm parse_algorithm(std::string_view text) { return parse(kAlgorithms, "algorithm", text); }
Precision parse_precision(std::string_view text) { return parse(kPrecisions, "precision", text); }

}  // namespace penstock
