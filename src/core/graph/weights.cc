#include "graph/weights.h"

namespace penstock::graph {

Weights::Weights(std::shared_ptr<ops::Queue> queue, std::size_t bytes, Renewal renewal)
    : queue_(std::move(queue)), values_(*queue_, bytes), renewal_(renewal) {
  values_.zero();
}

std::shared_ptr<Derived> Weights::derived(const std::string& key, std::size_t bytes,
                                          const std::shared_ptr<Derived>& mine) {
  std::shared_ptr<Derived>& held = derived_[key];
  // Two owners are this table and the caller; a third still reads what was made of older weights.
  const bool read_by_others = held != nullptr && held.use_count() > (held == mine ? 2 : 1);
  const bool stale = held != nullptr && held->version != version_;
  const bool keep_old = stale && read_by_others && renewal_ == Renewal::beside;
  if (held == nullptr || held->memory.bytes() != bytes || keep_old) {
    held = std::make_shared<Derived>();
    held->memory = ops::Buffer(*queue_, bytes);
  }
  return held;
}

std::size_t Weights::derived_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [key, form] : derived_) bytes += form->memory.bytes();
  return bytes;
}

}  // namespace penstock::graph
