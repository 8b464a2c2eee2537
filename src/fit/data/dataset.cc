#include "data/dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/quote.h"

namespace penstock::data {

using nlohmann::json;

namespace {

/// The library would cut a fraction off, and a number too large for T has no defined value at all.
template <class T>
T whole(const json& number) {
  if (!number.is_number_integer()) throw json::type_error::create(302, "not a whole number", &number);
  return number.get<T>();
}

}  // namespace

void check_batch(Index rows, Index steps) {
  constexpr Index most = Index{1} << 31;
  require(rows >= 1 && steps >= 1 && rows <= most && steps <= most && rows * steps <= most,
          "a batch must have at least one row and one step and at most 2^31 steps in all, not {} rows of {} steps",
          rows, steps);
}

void check_validation_fraction(double fraction) {
  require_argument(fraction >= 0.0 && fraction <= 0.5, "validation_fraction", fraction, "in [0, 0.5]");
}

Index held_out(Index count, double fraction) {
  if (fraction <= 0.0) return 0;
  return std::max<Index>(1, static_cast<Index>(std::floor(static_cast<double>(count) * fraction)));
}

void clear(Example& example, Index rows, Index steps) {
  example.rows = rows;
  example.steps = steps;
  example.tokens.clear();
  example.features.clear();
  example.labels.clear();
  example.targets.clear();
  example.weights.clear();
  example.lengths.clear();
  example.reset.clear();
  example.continues = false;
}

void Fingerprint::add(std::string_view bytes) {
  // Eight bytes at a time, a multiplication and a shift each: quick enough for files of gigabytes.
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t taken = std::min<std::size_t>(bytes.size(), sizeof word);
    std::memcpy(&word, bytes.data(), taken);
    hash_ = (hash_ ^ word) * 0xd6e8feb86659fd93ULL;
    hash_ ^= hash_ >> 32;
    bytes.remove_prefix(taken);
  }
}

std::uint64_t fingerprint(std::string_view bytes, std::uint64_t start) {
  Fingerprint result(bytes.size(), start);
  result.add(bytes);
  return result.value();
}

std::string to_text(const Position& position) {
  json text = {{"kind", position.kind}, {"fingerprint", position.fingerprint}, {"numbers", position.numbers}};
  if (position.random) text["random"] = *position.random;
  return text.dump();
}

Position parse_position(const std::string& text, const std::string& kind, std::uint64_t expected_fingerprint) {
  Position position;
  try {
    const json parsed = json::parse(text);
    position.kind = parsed.at("kind").get<std::string>();
    position.fingerprint = whole<std::uint64_t>(parsed.at("fingerprint"));
    for (const json& number : parsed.at("numbers")) position.numbers.push_back(whole<Index>(number));
    if (parsed.contains("random")) {
      Random::State& state = position.random.emplace();
      for (std::size_t i = 0; i < state.size(); ++i) state[i] = whole<std::uint64_t>(parsed.at("random").at(i));
    }
  } catch (const json::exception&) {
    fail(ErrorCode::bad_input, "the position in the data cannot be read: {}", in_quotes(text));
  }
  if (position.kind != kind) {
    fail(ErrorCode::incompatible, "this position belongs to {} data, not to {}", in_quotes(position.kind), kind);
  }
  if (position.fingerprint != expected_fingerprint) {
    fail(ErrorCode::incompatible,
         "this position belongs to other {} data: the file or the options with which it was opened have changed", kind);
  }
  return position;
}

void bad_position(const std::string& kind) {
  fail(ErrorCode::bad_input, "the position in the {} data lies outside of them", kind);
}

}  // namespace penstock::data
