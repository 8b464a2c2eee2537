#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "network/session.h"
#include "runtime/model.h"
#include "runtime/session.h"

namespace penstock::runtime {

/// A network that `penstock import` wrote, prepared for the shapes of its inputs.
class NetworkModel final : public Model {
 public:
  /// An input or an output that is no state: its elements are `size` floats of a step's from `first` on.
  struct Port {
    const char* name = nullptr;
    network::Type type = network::Type::f32;
    std::vector<std::int64_t> extents = {};
    std::size_t position = 0;  ///< In the network.
    std::size_t first = 0, size = 0;
  };

  /// Return null after a failure.
  static Model* open(const char* path, std::span<const penstock_shape> shapes, Failure& failure);
  static Model* open(std::string_view bytes, std::span<const penstock_shape> shapes, Failure& failure);

  std::size_t session_bytes() const override;
  Session* make_session(std::byte* memory, void* own) override;

  std::shared_ptr<const network::Program> program;
  std::vector<Port> reads, writes;

 private:
  bool build(std::span<const penstock_shape> shapes, Failure& failure);
  bool find_ports(Failure& failure);
};

/// A stream of a network: this object, then its memory.
class NetworkSession final : public Session {
 public:
  NetworkSession(NetworkModel& model, std::byte* memory, void* own);

 protected:
  void step(const float* features, std::int32_t token, float* outputs) override;
  void return_to_start() override { running_.reset(); }
  void read_state(void* bytes) const override { running_.read_state(bytes); }
  void write_state(const void* bytes) override { running_.write_state(bytes); }
  void take_state(const Session& other) override {
    running_.take_state(static_cast<const NetworkSession&>(other).running_);
  }

 private:
  void read(const float* features);
  void write(float* outputs) const;

  const NetworkModel* model_;
  network::Session running_;
  float* input_ = nullptr;         // of a network that reads floats in one tensor, as most do
  const float* output_ = nullptr;  // likewise
};

}  // namespace penstock::runtime
