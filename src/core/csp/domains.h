#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "csp/store.h"

/// The remaining values of variables during the search, with backtracking.
namespace penstock::csp {

class Domains {
 public:
  /// Domains with more values have only bounds, no holes.
  static constexpr Integer most_bits = 4096;

  void reset(const std::vector<NamedDomain>& variables) {
    slots_.clear();
    words_.clear();
    trail_.clear();
    for (const NamedDomain& variable : variables) {
      const Domain& domain = variable.domain;
      Slot slot{Access::values(domain), domain.bounds().low, words_.size(), domain.size() <= most_bits};
      words_.push_back(0);
      words_.push_back(static_cast<std::uint64_t>(domain.size() - 1));
      words_.push_back(static_cast<std::uint64_t>(domain.size()));
      if (slot.has_bits) words_.resize(words_.size() + static_cast<std::size_t>((domain.size() + 63) / 64), ~0ULL);
      slots_.push_back(slot);
    }
  }

  int count() const { return static_cast<int>(slots_.size()); }
  Integer size(int x) const { return get(x, 2); }
  bool fixed(int x) const { return get(x, 0) == get(x, 1); }
  bool has_bits(int x) const { return slots_[x].has_bits; }
  Range range(int x) const { return {value(x, get(x, 0)), value(x, get(x, 1))}; }

  /// Returns a value by its index in the domain of the model. Most functions here take such indices.
  Integer value(int x, Integer index) const {
    const Slot& slot = slots_[x];
    return slot.list == nullptr ? slot.first + index : slot.list[index];
  }
  Integer first(int x) const { return get(x, 0); }
  Integer last(int x) const { return get(x, 1); }
  bool alive(int x, Integer index) const {
    return !slots_[x].has_bits || ((words_[bits_at(x, index)] >> (index & 63)) & 1) != 0;
  }

  /// Removes a value. This and the following functions return false if no value is left.
  bool remove(int x, Integer index) {
    if (index < get(x, 0) || index > get(x, 1) || !alive(x, index)) return true;
    if (fixed(x)) return false;
    if (index == get(x, 0)) return cut(x, next(x, index + 1), get(x, 1));
    if (index == get(x, 1)) return cut(x, get(x, 0), previous(x, index - 1));
    if (!slots_[x].has_bits) return true;
    const std::size_t at = bits_at(x, index);
    set(at, words_[at] & ~(1ULL << (index & 63)));
    set(slots_[x].at + 2, words_[slots_[x].at + 2] - 1);
    return true;
  }

  bool assign(int x, Integer index) { return cut(x, index, index); }

  /// Keeps the values within a range.
  bool narrow(int x, Range to) {
    if (to.empty()) return false;
    Integer low = get(x, 0), high = get(x, 1);
    if (value(x, low) < to.low) low = lower_bound(x, low, high, to.low);
    if (low <= high && value(x, high) > to.high) high = lower_bound(x, low, high, to.high + 1) - 1;
    if (low > high) return false;
    if (!alive(x, low)) low = next(x, low);
    if (low > high) return false;
    if (!alive(x, high)) high = previous(x, high);
    return low > get(x, 0) || high < get(x, 1) ? cut(x, low, high) : true;
  }

  /// Keeps the values between two indices, both alive.
  bool cut(int x, Integer low, Integer high) {
    if (low > high) return false;
    const Slot& slot = slots_[x];
    const Integer size = slot.has_bits ? living(x, low, high) : high - low + 1;
    set(slot.at, static_cast<std::uint64_t>(low));
    set(slot.at + 1, static_cast<std::uint64_t>(high));
    set(slot.at + 2, static_cast<std::uint64_t>(size));
    return true;
  }

  /// Returns the first alive index from this one on; one beyond the last if there is none.
  Integer next(int x, Integer index) const {
    const Integer end = get(x, 1);
    while (index <= end && !alive(x, index)) ++index;
    return index;
  }
  Integer previous(int x, Integer index) const {
    const Integer end = get(x, 0);
    while (index >= end && !alive(x, index)) --index;
    return index;
  }

  /// Returns the bytes of memory that grow with the search.
  std::size_t bytes() const { return trail_.capacity() * sizeof(Saved); }

  std::size_t mark() const { return trail_.size(); }
  void undo(std::size_t mark) {
    while (trail_.size() > mark) {
      words_[trail_.back().at] = trail_.back().word;
      trail_.pop_back();
    }
  }

 private:
  struct Slot {
    const Integer* list;  // null for a range from `first`
    Integer first;
    std::size_t at;  // position in words_ of: first index, last index, number of values, bits
    bool has_bits;
  };
  struct Saved {
    std::size_t at;
    std::uint64_t word;
  };

  Integer get(int x, int field) const { return static_cast<Integer>(words_[slots_[x].at + field]); }
  std::size_t bits_at(int x, Integer index) const { return slots_[x].at + 3 + static_cast<std::size_t>(index / 64); }

  void set(std::size_t at, std::uint64_t word) {
    if (words_[at] == word) return;
    trail_.push_back({at, words_[at]});
    words_[at] = word;
  }

  Integer lower_bound(int x, Integer low, Integer high, Integer wanted) const {
    if (slots_[x].list == nullptr) return std::min(high + 1, wanted - slots_[x].first);
    while (low <= high) {
      const Integer middle = low + (high - low) / 2;
      if (value(x, middle) < wanted) {
        low = middle + 1;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  Integer living(int x, Integer low, Integer high) const {
    Integer count = 0;
    for (Integer word = low / 64; word <= high / 64; ++word) {
      std::uint64_t bits = words_[bits_at(x, word * 64)];
      if (word == low / 64) bits &= ~0ULL << (low & 63);
      if (word == high / 64) bits &= ~0ULL >> (63 - (high & 63));
      count += std::popcount(bits);
    }
    return count;
  }

  std::vector<Slot> slots_;
  std::vector<std::uint64_t> words_;
  std::vector<Saved> trail_;
};

}  // namespace penstock::csp
