#pragma once

#include <memory>
#include <mutex>

#include "base/last_used_cache.h"

namespace penstock {

/// Values that were asked for last, by keys that can only be compared; each made once, by whichever thread asks first.
template <class Key, class Value>
class SharedCache {
 public:
  explicit SharedCache(std::size_t most) : entries_(most) {}

  /// make() returns std::shared_ptr<Value>. If it throws, so does this, and the next one who asks tries again.
  template <class Make>
  std::shared_ptr<Value> get(const Key& key, const Make& make) {
    const std::shared_ptr<Entry> entry = find(key);
    const std::lock_guard lock(entry->making);
    if (!entry->value) entry->value = make();
    return entry->value;
  }

 private:
  struct Entry {
    std::mutex making;
    std::shared_ptr<Value> value;
  };

  std::shared_ptr<Entry> find(const Key& key) {
    const std::lock_guard lock(guard_);
    return entries_.get(key, [] { return std::make_shared<Entry>(); });
  }

  std::mutex guard_;
  LastUsedCache<Key, std::shared_ptr<Entry>> entries_;
};

}  // namespace penstock
