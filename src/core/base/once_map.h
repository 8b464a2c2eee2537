#pragma once

#include <map>
#include <memory>
#include <mutex>

namespace penstock {

/// Values that are made on first use, one of each key, by the first thread that asks; a thread that asks for the same
/// key meanwhile waits for it. Values of different keys are made side by side.
template <class Key, class Value>
class OnceMap {
 public:
  /// make() returns std::unique_ptr<Value>. If it throws, so does this, and the next one who asks tries again. The
  /// reference is good as long as the map.
  template <class Make>
  const Value& get(const Key& key, const Make& make) {
    Place& place = place_of(key);
    const std::lock_guard lock(place.making);
    if (!place.value) place.value = make();
    return *place.value;
  }

 private:
  struct Place {
    std::mutex making;
    std::unique_ptr<Value> value;
  };

  Place& place_of(const Key& key) {
    const std::lock_guard lock(mutex_);
    return places_[key];  // nodes of a map stay where they are
  }

  std::mutex mutex_;
  std::map<Key, Place> places_;
};

}  // namespace penstock
