#pragma once

#include <memory>
#include <vector>

#include "backend/cuda/driver/device.h"

namespace penstock::ops {

/// A small table that an executable's kernels read, on its GPU for as long as the executable lives.
class Uploaded {
 public:
  Uploaded(cuda::Device& device, const std::vector<unsigned char>& bytes)
      : held_(std::make_shared<Held>(device, bytes)) {}
  cuda::DeviceAddress address() const { return held_->memory.address(); }

 private:
  struct Held {
    Held(cuda::Device& device, const std::vector<unsigned char>& bytes) : stream(device), memory(stream, bytes.size()) {
      memory.upload(bytes.data(), bytes.size());
    }
    cuda::Stream stream;
    cuda::Buffer memory;
  };
  std::shared_ptr<Held> held_;
};

}  // namespace penstock::ops
