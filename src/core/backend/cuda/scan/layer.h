#pragma once

#include <optional>
#include <string>

#include "backend/cuda/product/gradient_products.h"
#include "backend/cuda/product/sum_columns.h"
#include "backend/cuda/scan/epilogue.h"
#include "backend/cuda/scan/fused.h"
#include "backend/cuda/scan/scan.h"

namespace penstock::cuda {

/// One layer of a scan cell on a GPU: gates [P, G, H] = x W^T + bias for all P positions (steps of all rows) in one
/// product, then the recurrence over them in one pass; or all of it in one launch (plan::ScanAlgorithm).
struct LayerSpec {
  std::string cell = "mingru";
  Index input = 1;                               ///< I
  Index hidden = 1;                              ///< H
  plan::Storage storage = plan::Storage::bf16;   ///< Storage of x, y, weights, gates and their gradients
  plan::Storage gradients = plan::Storage::f32;  ///< Storage of the gradients of weight and bias: f32, or `storage`
  bool bias = true;
  bool reverse = false;
  bool tf32 = false;   ///< f32 storage only: products with factors rounded to 10 bits of mantissa
  bool exact = false;  ///< Forward: the input product is exact (ProductShape), and the algorithm is direct.
  /// Algorithm of the forward pass. The backward pass, which is never fused, is then planned by itself; direct and scan
  /// hold for both.
  plan::ScanAlgorithm algorithm = plan::ScanAlgorithm::automatic;
};

/// Throws Error(invalid_argument) if the layer has no bias but its cell has learnt vectors, which lie behind it.
void require_bias_of(const LayerSpec& spec);

/// Weights of a layer, [G * H, I] and [G * H], without gaps; the gates in the cell's order. The K learnt vectors of a
/// cell lie behind the bias: [(G + K) * H].
struct LayerWeights {
  DeviceAddress weight = 0;
  DeviceAddress bias = 0;
};

/// Steps of a batch; the layer sets rule, storage, channels and direction of the ScanShape.
using LayerBatch = ScanShape;

/// x [B, T, I] must be one matrix of P rows: rows after rows or steps after steps, with one stride from each to the
/// next. It is read beyond the lengths too, where it must hold finite numbers. y [B, T, H] has free strides.
struct LayerForward {
  LayerBatch batch;
  DeviceSequence x, y;
  LayerWeights weights;
  DeviceAddress gates = 0;  ///< [P, G * H], all that the backward pass needs besides x and y. 0: fused or epilogue only
  bool keep_gates = true;   ///< They will be wanted; otherwise it depends on the algorithm what becomes of them.
  DeviceAddress state_in = 0;   ///< float [B, H], or 0 for zeros
  DeviceAddress state_out = 0;  ///< float [B, H], or 0; may be state_in
};

struct LayerBackward {
  LayerBatch batch;
  DeviceSequence x, y, dy;     ///< x and y as of the forward pass
  DeviceSequence dx;           ///< Laid out like x; no data: not wanted
  bool add_dx = false;         ///< Added to what dx holds, instead of replacing it
  LayerWeights weights;        ///< Only the weight is read
  LayerWeights gradients;      ///< Written, not added to
  DeviceAddress gates = 0;     ///< As the forward pass left them
  DeviceAddress dgates = 0;    ///< [P, G * H], written; may be `gates`
  DeviceAddress state_in = 0;  ///< As of the forward pass
  DeviceAddress dstate_out = 0;
  DeviceAddress dstate_in = 0;  ///< Written unless 0
  DeviceAddress drestarts = 0;  ///< Written unless 0, with the strides of batch.restarts
};

/// The positions of a batch as rows of one matrix: how many, how far apart in x, and how rows and steps of a matrix
/// without gaps lie in the same order.
struct MatrixRows {
  Index count = 1;
  Index x_stride = 1;
  Index row_stride = 1, step_stride = 1;  // in positions

  /// Throws Error(invalid_argument) unless a call's x has as many, as far apart.
  void require_of(const LayerBatch& batch, const DeviceSequence& x, Index input) const;
};

/// Returns the planner's problem of a call. Throws Error(invalid_argument) if the call does not fit the spec.
plan::GpuLayerProblem problem_of(const LayerForward& call, const LayerSpec& spec);

/// The parts of a workspace, in bytes. What blocks pass on and sums (zero before their first use; every run leaves them
/// ready) must not be overwritten by what products leave behind: layers that share a workspace share the parts, each
/// as large as the largest needs it, except `sums`, of which each has its own.
struct WorkspaceParts {
  std::size_t passed = 0, sums = 0, products = 0;
  std::size_t bytes() const { return passed + sums + products; }
};

/// Places of a layer's parts in a workspace.
struct WorkspacePlaces {
  std::size_t passed = 0, sums = 0, products = 0;
};

/// A forward pass, planned and compiled. Running allocates nothing, waits for nothing, and can be captured. Not safe
/// for two calls at once.
class LayerForwardExecutable {
 public:
  /// Throws Error: invalid_argument for what does not fit, unsupported without NVRTC or cuBLASLt.
  LayerForwardExecutable(Device& device, const LayerSpec& spec, const LayerForward& call);
  /// Bytes of workspace, aligned to 128; zero before its first use, and for one run at a time.
  std::size_t workspace_bytes() const { return parts().bytes(); }
  WorkspaceParts parts() const;
  /// Instead of one part after the other.
  void place(const WorkspacePlaces& places) { places_ = places; }
  const plan::GpuScanPlan& plan() const;
  /// Uses a plan of the caller's, in the fused or the epilogue algorithm, for measurements.
  LayerForwardExecutable(Device& device, const LayerSpec& spec, const LayerForward& call,
                         const plan::GpuScanPlan& plan);
  /// A call of the form that was prepared: other addresses, no more rows or steps.
  void run(const LayerForward& call, DeviceAddress workspace, StreamHandle stream) const;
  /// The second half alone, from gates that are there: for measurements. Not of a algorithm that has no second half.
  void run_scan(const LayerForward& call, DeviceAddress workspace, StreamHandle stream) const;

 private:
  LayerSpec spec_;
  ScanRule rule_;
  std::optional<FusedExecutable> fused_;        // or
  std::optional<EpilogueExecutable> epilogue_;  // or
  std::optional<ScanExecutable> scan_;          // and product_
  MatrixProduct product_;
  MatrixRows positions_;
  WorkspacePlaces places_;

  /// Prepares the whole layer as one launch if the plan is of such a algorithm. Returns whether it is.
  bool prepare_one_launch(Device& device, const LayerForward& call, const plan::GpuScanPlan& plan);
};

/// Gradients of a layer: the recurrence run backwards with the gates' maths, then one product for the weights and one
/// for x. Gates' activations are made again from the gates, which costs less than reading them would.
class LayerBackwardExecutable {
 public:
  LayerBackwardExecutable(Device& device, const LayerSpec& spec, const LayerBackward& call);
  std::size_t workspace_bytes() const { return parts().bytes(); }
  WorkspaceParts parts() const;
  void place(const WorkspacePlaces& places) { places_ = places; }
  const plan::GpuScanPlan& plan() const { return scan_.plan(); }
  void run(const LayerBackward& call, DeviceAddress workspace, StreamHandle stream) const;

 private:
  std::size_t dlearnt_bytes() const;
  std::size_t drestarts_bytes() const;
  DeviceAddress clear_drestarts(const LayerBackward& call, DeviceAddress shares, StreamHandle stream) const;

  LayerSpec spec_;
  ScanRule rule_;
  ScanExecutable scan_;
  MatrixRows positions_;
  GradientProducts products_;
  std::optional<SumColumnsExecutable> learnt_sums_, restart_sums_;
  bool wants_dx_;
  WorkspacePlaces places_;
};

}  // namespace penstock::cuda
