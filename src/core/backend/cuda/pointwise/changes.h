#pragma once

#include "backend/cuda/pointwise/launch.h"

namespace penstock::cuda {

/// A column of a series that is an input and a target: normalised as a target it is offset + factor * input, and its
/// changes from position to position are read multiplied by change_factor.
struct SharedColumn {
  Index input = 0, target = 0;
  double change_factor = 1.0, factor = 1.0, offset = 0.0;
};

/// A series by its changes (ops/pointwise/series.h): what the layers read, and what is added to what they say.
struct Changes {
  Positions positions = {};
  Index inputs = 1, horizon = 1, targets = 1;    ///< I
  std::vector<SharedColumn> columns = {};        ///< S
  plan::Storage features = plan::Storage::bf16;  ///< Storage of the layers' inputs
  plan::Storage outputs = plan::Storage::f32;    ///< Storage of the layers' outputs
};

struct ChangesReadCall {
  DeviceAddress columns = 0;    ///< As ChangesExecutable::columns() has them
  DeviceAddress features = 0;   ///< float [B, T, I]
  DeviceAddress lengths = 0;    ///< int64 [B], or 0
  DeviceAddress reset = 0;      ///< uint8 [B, T], or 0
  DeviceAddress state_in = 0;   ///< float [B, S + 1]: the values of the position before, and whether there was one
  DeviceAddress state_out = 0;  ///< float [B, S + 1]; may be state_in for one step
  DeviceAddress y = 0;          ///< [B, T, I + S]
};

struct ChangesAddCall {
  DeviceAddress columns = 0, features = 0, lengths = 0;  ///< As above
  DeviceAddress outputs = 0;                             ///< [B, T, horizon, targets], added to
};

class ChangesExecutable {
 public:
  ChangesExecutable(Device& device, const Changes& spec);
  /// Returns the bytes of the table of columns, which the caller uploads once.
  const std::vector<unsigned char>& columns() const { return columns_; }
  void read(const ChangesReadCall& call, StreamHandle stream) const;
  void add_last(const ChangesAddCall& call, StreamHandle stream) const;

 private:
  Changes spec_;
  std::vector<unsigned char> columns_;
  const Kernel *read_, *add_;
};

KernelSource changes_source(plan::Storage storage, bool add);

}  // namespace penstock::cuda
