#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "penstock/data/dataset.h"

/// Helpers that datasets share.
namespace penstock::data {

/// Throws Error(invalid_argument) for batches that are empty or too large to be meant.
void check_batch(Index rows, Index steps);
/// Throws Error(invalid_argument) unless the fraction is in [0, 0.5].
void check_validation_fraction(double fraction);
/// How many of `count` items are held out: at least one unless the fraction is 0.
Index held_out(Index count, double fraction);

/// Empties all members but keeps their memory.
void clear(Example& example, Index rows, Index steps);

/// A number that differs (almost surely) when bytes do, the same on every machine.
class Fingerprint {
 public:
  /// Begins with bytes of this number in all.
  explicit Fingerprint(std::uint64_t size, std::uint64_t start = 0) : hash_(start ^ (size * 0x9e3779b97f4a7c15ULL)) {}
  /// Adds the next bytes: a multiple of 8, unless they are the last.
  void add(std::string_view bytes);
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_;
};
/// Returns the fingerprint of all bytes.
std::uint64_t fingerprint(std::string_view bytes, std::uint64_t start = 0);
/// The bytes of numbers.
template <class T>
std::string_view bytes_of(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

/// Content of Dataset::position().
struct Position {
  std::string kind;               ///< Which dataset wrote it.
  std::uint64_t fingerprint = 0;  ///< Fingerprint of its data and options.
  std::vector<Index> numbers;     ///< Numbers whose meaning only the dataset knows.
  std::optional<Random::State> random;
};

std::string to_text(const Position& position);
/// Throws Error(bad_input) if the text is no position, Error(incompatible) if it is that of another kind or
/// fingerprint.
Position parse_position(const std::string& text, const std::string& kind, std::uint64_t expected_fingerprint);
/// Throws Error(bad_input) about numbers that do not fit the dataset.
[[noreturn]] void bad_position(const std::string& kind);

}  // namespace penstock::data
