#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "ops/memory/memory.h"

namespace penstock::graph {

/// Something made of weights, such as their panels: memory, and of which version of the weights it was made.
struct Derived {
  ops::Buffer memory;
  std::uint64_t version = 0;  ///< 0: of none yet
};

/// The parameters of a model on one device, and what is derived from them. Any number of workspaces share both.
///
/// Derived forms are made anew when the values have changed; who still reads an old form keeps it, so that nothing
/// moves under a running call. Values themselves are read where they lie: a session that is to see new weights, all of
/// them, is opened anew.
class Weights {
 public:
  /// Where new derived forms go: into other memory while anybody has the old form, or always into the memory of the old
  /// one, for owners whose callers let no call run while values change.
  enum class Renewal { beside, in_place };

  /// All zero.
  Weights(std::shared_ptr<ops::Queue> queue, std::size_t bytes, Renewal renewal = Renewal::beside);

  ops::Queue& queue() const { return *queue_; }
  const std::shared_ptr<ops::Queue>& shared_queue() const { return queue_; }
  ops::Buffer& values() { return values_; }
  const ops::Buffer& values() const { return values_; }

  /// Counts from 1. To be raised whenever values have been written.
  std::uint64_t version() const { return version_; }
  void changed() { ++version_; }

  /// The derived form of that name as its readers see it now, allocated if need be. If it is not of the current
  /// version, the caller makes it so under `making` and sets its version. `mine`: the form that the caller holds
  /// already, or null.
  std::shared_ptr<Derived> derived(const std::string& key, std::size_t bytes, const std::shared_ptr<Derived>& mine);
  std::mutex& making() { return making_; }

  /// Number and bytes of derived forms that are held.
  std::size_t derived_count() const { return derived_.size(); }
  std::size_t derived_bytes() const;

 private:
  std::shared_ptr<ops::Queue> queue_;
  ops::Buffer values_;
  Renewal renewal_;
  std::uint64_t version_ = 1;
  std::mutex making_;
  std::map<std::string, std::shared_ptr<Derived>> derived_;
};

}  // namespace penstock::graph
