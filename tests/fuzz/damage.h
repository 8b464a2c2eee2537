#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "penstock/types.h"

namespace penstock::test {

/// A damaged copy of a valid input: some bytes changed, inserted, removed, repeated, or replaced by a word that parsers
/// find hard. What a fuzzer does, without one, and the same in every run.
inline std::string mutated(std::string text, const std::vector<std::string_view>& words, Random& random) {
  const auto place = [&] { return static_cast<std::size_t>(random.below(static_cast<Index>(text.size()) + 1)); };
  for (Index edits = 1 + random.below(4); edits > 0; --edits) {
    const std::size_t at = place();
    const auto length = static_cast<std::size_t>(random.below(1 + random.below(40)));
    switch (random.below(6)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << random.below(8)));
        break;
      case 1:
        if (at < text.size()) text[at] = static_cast<char>(random.below(256));
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(place(), std::string(text, at, length));
        break;
      case 4:
        text.replace(at, std::min(length, text.size() - at), words[random.below(static_cast<Index>(words.size()))]);
        break;
      default:
        if (random.below(4) == 0) text.resize(at);
    }
  }
  return text;
}

}  // namespace penstock::test
