#pragma once

#include <cstddef>
#include <list>

namespace penstock {

/// A cache of the values that were used last, by keys that can only be compared. One thread at a time may use it.
template <class Key, class Value>
class LastUsedCache {
 public:
  explicit LastUsedCache(std::size_t most) : most_(most) {}

  /// Returns the value of `key`. If there is none, make() makes it. If the cache is full, the value that was used
  /// longest ago goes first, so that both never need memory at once. A reference stays good until its value goes.
  template <class Make>
  Value& get(const Key& key, const Make& make) {
    for (auto at = entries_.begin(); at != entries_.end(); ++at) {
      if (!(at->key == key)) continue;
      if (at != entries_.begin()) entries_.splice(entries_.begin(), entries_, at);
      return entries_.front().value;
    }
    if (entries_.size() == most_) entries_.pop_back();
    entries_.emplace_front(key, make);
    return entries_.front().value;
  }

  /// Calls visit(value) for each value.
  template <class Visit>
  void for_each(const Visit& visit) {
    for (Entry& entry : entries_) visit(entry.value);
  }

 private:
  struct Entry {
    template <class Make>
    Entry(const Key& k, const Make& make) : key(k), value(make()) {}
    Key key;
    Value value;
  };

  std::size_t most_;
  std::list<Entry> entries_;  // the last used first
};

}  // namespace penstock
