#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "penstock/tensor.h"

/// CUDA graphs, pipelined copies and memory of others, for programs that keep their data on NVIDIA GPUs. docs/cuda.md
/// has examples.
///
/// No CUDA header is needed. GPU addresses are pointers that the host must not dereference; streams are `cudaStream_t`
/// or `CUstream`. Everything uses the primary context of the device, as the CUDA runtime and PyTorch do.
///
/// Errors: unsupported without a driver, a GPU of compute capability 8.0 or later, NVRTC, or cuBLASLt, with advice what
/// to install; invalid_argument for arguments that do not match; out_of_memory; device_failure with the driver's
/// message.
namespace penstock {

/// Returns the GPU that owns the memory at `address`. Throws Error(invalid_argument) if no GPU does.
Device gpu_of(const void* address);

/// Waits until all work of a device is done, whatever its stream. Returns at once for the CPU.
void synchronize(Device device);

/// Work on a GPU stream, recorded once and launched by one call.
class CudaGraph {
 public:
  /// Records the work that `work` queues on the stream, without running it. `work` must neither allocate nor wait.
  /// Calls of networks and programs do neither once they have run. Throws Error(invalid_argument) for a stream of the
  /// CPU.
  CudaGraph(Stream& stream, const std::function<void()>& work);
  ~CudaGraph();
  CudaGraph(CudaGraph&&) noexcept;
  CudaGraph& operator=(CudaGraph&&) noexcept;

  /// Queues the recorded work on `stream`, a `cudaStream_t` or `CUstream`.
  void launch(void* stream) const;

 private:
  struct Content;
  std::unique_ptr<Content> content_;
};

/// Moves chunks of data through a GPU: while the GPU computes on one chunk, the next is copied to it and the previous
/// result is copied back, through pinned host memory and two streams.
///
/// Chunks are computed one after the other, in order, so each may continue from the state of the one before. The
/// pipeline pays if chunks are produced directly in the memory that it provides; data from elsewhere must be copied
/// there first.
class CudaPipeline {
 public:
  /// Writes the next chunk to `input` in pinned host memory; returns false if there is none.
  using Fill = std::function<bool(void* input)>;
  /// Queues the computation of a chunk on `stream`, from `input` to `output` in GPU memory.
  using Work = std::function<void(void* input, void* output, void* stream)>;
  /// Reads the results of a chunk from pinned host memory. Called in the order of the chunks.
  using Take = std::function<void(const void* output)>;

  /// Allocates memory for chunks of `input_bytes` and results of `output_bytes`.
  CudaPipeline(std::size_t input_bytes, std::size_t output_bytes, int device = 0);
  ~CudaPipeline();
  CudaPipeline(CudaPipeline&&) noexcept;
  CudaPipeline& operator=(CudaPipeline&&) noexcept;

  /// Processes all chunks. Other data that `work` reads must be complete before the call, since the pipeline's streams
  /// wait for no other stream.
  void run(const Fill& fill, const Work& work, const Take& take);

 private:
  struct Content;
  std::unique_ptr<Content> content_;
};

}  // namespace penstock
