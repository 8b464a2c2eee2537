// Names of the public enumerations, and back.

#include "base/names.h"

#include "penstock/types.h"

namespace penstock {
namespace {

constexpr Names<3> kDirections = {"forward", "reverse", "bidirectional"};
constexpr Names<3> kBiases = {"none", "single", "both"};
constexpr Names<3> kAlgorithms = {"auto", "sequential", "scan"};
constexpr Names<5> kPrecisions = {"full", "bf16-weights", "bf16", "f16", "tf32"};

}  // namespace

std::string_view to_string(Direction direction) { return name_of(kDirections, direction); }
std::string_view to_string(Bias bias) { return name_of(kBiases, bias); }
std::string_view to_string(Algorithm algorithm) { return name_of(kAlgorithms, algorithm); }
std::string_view to_string(Precision precision) { return name_of(kPrecisions, precision); }

Direction parse_direction(std::string_view text) { return parse_name<Direction>("direction", kDirections, text); }
Bias parse_bias(std::string_view text) { return parse_name<Bias>("bias", kBiases, text); }
Algorithm parse_algorithm(std::string_view text) { return parse_name<Algorithm>("algorithm", kAlgorithms, text); }
Precision parse_precision(std::string_view text) { return parse_name<Precision>("precision", kPrecisions, text); }

}  // namespace penstock
