#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "penstock/tensor.h"

/// What programs that keep their data on NVIDIA GPUs want besides the programs of recurrent_program.h and
/// scan_program.h. No CUDA header is needed: addresses of the GPU are pointers that the host does not follow, streams
/// are what `cudaStream_t` and `CUstream` are. Everything uses the device's primary context, as the CUDA runtime and
/// PyTorch do. docs/cuda.md shows each of these at work.
///
/// Whatever cannot be had is an Error: unsupported without a driver, a GPU of compute capability 8.0, NVRTC, or
/// cuBLASLt, each saying what to install; invalid_argument for what does not fit; out_of_memory; device_failure with
/// the driver's own words.
namespace penstock {

/// Work of a GPU's stream recorded once, launched by one call of the host.
class CudaGraph {
 public:
  /// Records what `work` puts into the stream; nothing runs yet. `work` must neither allocate nor wait, which calls of
  /// programs that have run once do not.
  CudaGraph(Stream& stream, const std::function<void()>& work);
  ~CudaGraph();
  CudaGraph(CudaGraph&&) noexcept;
  CudaGraph& operator=(CudaGraph&&) noexcept;

  /// Into `cudaStream_t` or `CUstream`.
  void launch(void* stream) const;

 private:
  struct Content;
  std::unique_ptr<Content> content_;
};

/// Chunks of data on their way through a GPU: while it works on one, the next is copied to it and the one before from
/// it, through pinned memory of the host and two streams. Works run one after the other, in the order of the chunks, so
/// that each may go on from the state that the last one left. It pays where chunks are made straight into the memory
/// that it gives; what lies elsewhere must be copied there first.
class CudaPipeline {
 public:
  /// Writes the next chunk; false if there is none.
  using Fill = std::function<bool(void* input)>;
  /// Puts the work on a chunk into a stream, from one address of the GPU to another.
  using Work = std::function<void(void* input, void* output, void* stream)>;
  /// Reads a chunk's results, in the order of the chunks.
  using Take = std::function<void(const void* output)>;

  /// Sizes of every chunk, in bytes.
  CudaPipeline(std::size_t input_bytes, std::size_t output_bytes, int device = 0);
  ~CudaPipeline();
  CudaPipeline(CudaPipeline&&) noexcept;
  CudaPipeline& operator=(CudaPipeline&&) noexcept;

  /// All chunks. What the work reads besides must be there before: the pipeline's streams wait for no other.
  void run(const Fill& fill, const Work& work, const Take& take);

 private:
  struct Content;
  std::unique_ptr<Content> content_;
};

}  // namespace penstock
