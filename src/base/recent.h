#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <utility>

namespace penstock {

/// Values that were asked for last, by keys that can only be compared; each made once, by whichever thread asks first.
template <class Key, class Value>
class Recent {
 public:
  explicit Recent(std::size_t most) : most_(most) {}

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
    explicit Entry(Key k) : key(std::move(k)) {}
    Key key;
    std::mutex making;
    std::shared_ptr<Value> value;
  };

  std::shared_ptr<Entry> find(const Key& key) {
    const std::lock_guard lock(guard_);
    for (auto at = entries_.begin(); at != entries_.end(); ++at) {
      if (!((*at)->key == key)) continue;
      entries_.splice(entries_.begin(), entries_, at);
      return entries_.front();
    }
    entries_.push_front(std::make_shared<Entry>(key));
    if (entries_.size() > most_) entries_.pop_back();
    return entries_.front();
  }

  std::size_t most_;
  std::mutex guard_;
  std::list<std::shared_ptr<Entry>> entries_;
};

}  // namespace penstock
