#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "penstock/recurrent.h"
#include "penstock/scan.h"

/// Scan cells on NVIDIA GPUs, for programs that keep their data there. No CUDA header is needed: addresses of the GPU
/// are numbers, streams are what `cudaStream_t` and `CUstream` are. Everything uses the device's primary context, as
/// the CUDA runtime and PyTorch do. docs/cuda.md shows each of these at work.
///
/// Operations are prepared for a form of call and then run: running allocates nothing, waits for nothing and can be
/// recorded into a CudaGraph. Whatever cannot be had is an Error: unsupported without a driver, a GPU of compute
/// capability 8.0, NVRTC, or cuBLASLt, each saying what to install; invalid_argument for what does not fit;
/// out_of_memory; device_failure with the driver's own words.
namespace penstock {

/// An address of the GPU; 0 is none.
using CudaAddress = std::uintptr_t;
/// `cudaStream_t` or `CUstream`; null is the default stream.
using CudaStream = void*;

/// How numbers lie in a GPU's memory. States and arithmetic are float whatever this is.
enum class CudaType { f32, bf16, f16 };

/// How a recurrence runs over T. A regime that was asked for and cannot be had is an Error(unsupported).
enum class CudaRegime {
  automatic,  ///< The planner chooses.
  direct,     ///< A thread walks all steps of its channels. For short T.
  fused,      ///< Forward passes of layers: product, gates and recurrence in one launch. For small layers.
  scan,       ///< Blocks take chunks of T side by side and hand the state on.
};

std::string_view to_string(CudaType type);
std::string_view to_string(CudaRegime regime);
CudaType parse_cuda_type(std::string_view text);
CudaRegime parse_cuda_regime(std::string_view text);

/// A tensor [B, T, C] on a GPU: channels side by side, the strides of B and T in elements.
struct CudaSequence {
  CudaAddress data = 0;
  Index row_stride = 0;
  Index step_stride = 0;

  /// [B, T, C] without gaps; packed rows too, with T the steps of all rows together.
  static CudaSequence batch_first(CudaAddress data, Index steps, Index channels) {
    return {data, steps * channels, channels};
  }
  /// [T, B, C] without gaps.
  static CudaSequence time_first(CudaAddress data, Index rows, Index channels) {
    return {data, channels, rows * channels};
  }
};

/// Which steps of which rows exist, as Batch says it for the CPU, with what is on the GPU.
struct CudaBatch {
  Index rows = 1;              ///< B
  Index steps = 1;             ///< T; packed rows: the steps of all rows together
  CudaAddress lengths = 0;     ///< int64 [B] or 0. Steps beyond a row's length become zero in the outputs
  CudaAddress cu_seqlens = 0;  ///< int64 [B + 1] or 0, instead of lengths: packed rows
  Index longest = 0;           ///< Packed rows: none is longer; 0: `steps`
  CudaAddress reset = 0;       ///< uint8 [B, T] without gaps, or 0: nonzero clears the state before a step
};

/// A stream that does not wait for the default stream.
class CudaQueue {
 public:
  explicit CudaQueue(int device = 0);
  ~CudaQueue();
  CudaQueue(CudaQueue&&) noexcept;
  CudaQueue& operator=(CudaQueue&&) noexcept;

  CudaStream stream() const;
  /// The host waits until all work of the stream is done.
  void synchronize() const;

  struct Content;
  Content& content() const { return *content_; }

 private:
  std::unique_ptr<Content> content_;
};

/// Memory of a GPU, allocated and freed in the order of a queue, which must outlive it. Aligned to 256 bytes.
class CudaBuffer {
 public:
  CudaBuffer();
  CudaBuffer(CudaQueue& queue, std::size_t bytes);
  ~CudaBuffer();
  CudaBuffer(CudaBuffer&&) noexcept;
  CudaBuffer& operator=(CudaBuffer&&) noexcept;

  CudaAddress address() const;
  std::size_t bytes() const;
  /// Sets every byte to zero, in the order of the queue.
  void clear();
  /// Copies the first bytes from or to any memory of the host and waits for that.
  void upload(const void* from, std::size_t bytes);
  void download(void* to, std::size_t bytes) const;

 private:
  struct Content;
  std::unique_ptr<Content> content_;
};

/// Work of a stream recorded once, launched by one call of the host.
class CudaGraph {
 public:
  /// Records what `work` puts into the queue's stream; nothing runs yet. `work` must neither allocate nor wait.
  CudaGraph(CudaQueue& queue, const std::function<void()>& work);
  ~CudaGraph();
  CudaGraph(CudaGraph&&) noexcept;
  CudaGraph& operator=(CudaGraph&&) noexcept;

  void launch(CudaStream stream) const;

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
  using Work = std::function<void(CudaAddress input, CudaAddress output, CudaStream stream)>;
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

/// The linear recurrence by itself on a GPU; Scan says what it computes. Here chunks are summed up before the state
/// that enters them is known: what overflows in a chunk that starts from a state of zero is infinite or NaN from there
/// on, even where that state would have kept it in range. CudaRegime::direct has no chunks.
struct CudaScanSpec {
  Index channels = 1;  ///< C
  ScanForm form = ScanForm::linear;
  bool reverse = false;
  CudaType type = CudaType::f32;  ///< Of the terms, of h and of their gradients
  CudaRegime regime = CudaRegime::automatic;
  int device = 0;
};

class CudaScan {
 public:
  struct Terms {
    CudaSequence a, b;
    CudaSequence factor;  ///< ScanForm::logarithmic: the factor of b; no data: 1
  };
  struct Forward {
    CudaBatch batch;
    Terms terms;
    CudaSequence h;      ///< May be one of the terms
    CudaAddress h0 = 0;  ///< float [B, C]; 0: zeros
    CudaAddress hT = 0;  ///< float [B, C], written unless 0; may be h0
  };
  struct Backward {
    CudaBatch batch;
    Terms terms;  ///< As of the forward call; linear: `b` is not read and needs no data
    CudaSequence h, dh;
    Terms dterms;         ///< Written; may be the terms and dh, but not h
    CudaAddress h0 = 0;   ///< As of the forward call
    CudaAddress dhT = 0;  ///< float [B, C]; 0: zeros
    CudaAddress dh0 = 0;  ///< float [B, C], written unless 0
  };

  explicit CudaScan(const CudaScanSpec& spec);
  ~CudaScan();
  CudaScan(CudaScan&&) noexcept;
  CudaScan& operator=(CudaScan&&) noexcept;

  /// Plans and compiles for calls of this form: no more rows and steps, strides and addresses of the same alignment or
  /// better, lengths and resets or none as here. Replaces what was prepared of that direction before.
  void prepare(const Forward& form);
  void prepare(const Backward& form);
  /// For all that is prepared. The workspace is the caller's, aligned to 256 bytes, zero before its first use, and
  /// belongs to one call at a time.
  std::size_t workspace_bytes() const;
  /// How what is prepared will run, and why.
  std::string explain() const;

  /// Throw Error(invalid_argument) for a call beyond the form that was prepared.
  void forward(const Forward& call, CudaAddress workspace, CudaStream stream) const;
  void backward(const Backward& call, CudaAddress workspace, CudaStream stream) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A stack of minGRU or minLSTM layers on a GPU.
struct CudaRecurrentSpec {
  RecurrentSpec layers;                       ///< A scan cell; no dropout
  CudaType type = CudaType::f32;              ///< Of x, y, weights and what lies between
  CudaType gradients = CudaType::f32;         ///< Of the gradients of weights: f32, or as `type`
  bool tf32 = false;                          ///< f32 only: products round their factors to 10 bits of mantissa
  CudaRegime regime = CudaRegime::automatic;  ///< Of forward passes; ways back are never fused
  int device = 0;
};

/// Weights lie in one block of the caller's, gradients in another; parameters() says where. Rows, steps and states mean
/// what they mean for Recurrent: states are float [layers * directions, B, H].
class CudaRecurrent {
 public:
  struct Parameter {
    std::string name;                 ///< "weight_ih_l0", "bias_ih_l1_reverse", ..., as in Recurrent
    std::vector<Index> shape;         ///< [G*H, I] or [G*H], without gaps
    std::size_t offset = 0;           ///< Bytes from the start of the block of weights
    std::size_t gradient_offset = 0;  ///< Bytes from the start of the block of gradients
  };
  struct Forward {
    CudaBatch batch;
    /// [B, T, I]: rows after rows or steps after steps, without gaps between them; read beyond the lengths too, where
    /// it must hold finite numbers.
    CudaSequence x;
    CudaSequence y;  ///< [B, T, H * directions], any strides; not x
    CudaAddress weights = 0;
    CudaAddress state_in = 0;   ///< 0: zeros
    CudaAddress state_out = 0;  ///< Written unless 0; may be state_in
    CudaAddress tape = 0;       ///< tape_bytes(), written, if backward() is to follow; 0: it is not
  };
  struct Backward {
    CudaBatch batch;
    CudaSequence x, y, dy;  ///< x and y as of the forward call
    CudaSequence dx;        ///< Laid out like x; no data: not wanted
    CudaAddress weights = 0;
    CudaAddress gradients = 0;                  ///< Written, not added to
    CudaAddress state_in = 0;                   ///< As of the forward call
    CudaAddress dstate_out = 0, dstate_in = 0;  ///< 0: zeros; written unless 0
    CudaAddress tape = 0;                       ///< As of the forward call; used up
  };
  /// One step of a stream; forward direction only.
  struct Step {
    Index rows = 1;
    CudaAddress x = 0;  ///< [B, I] without gaps
    CudaAddress y = 0;  ///< [B, H] without gaps
    CudaAddress weights = 0;
    CudaAddress state = 0;  ///< Updated in place
  };

  /// Throws Error: invalid_argument naming the field that is impossible, unsupported for cells that do not run on a
  /// GPU.
  explicit CudaRecurrent(const CudaRecurrentSpec& spec);
  ~CudaRecurrent();
  CudaRecurrent(CudaRecurrent&&) noexcept;
  CudaRecurrent& operator=(CudaRecurrent&&) noexcept;

  const CudaRecurrentSpec& spec() const;
  const std::vector<Parameter>& parameters() const;
  std::size_t weight_bytes() const;
  std::size_t gradient_bytes() const;
  /// What a forward call leaves for its backward call: gates, and outputs between the layers.
  std::size_t tape_bytes(const CudaBatch& batch) const;

  /// Copies the values of a stack of the same shape to the block of weights, rounded to its type, and waits for that.
  void upload(Recurrent<float>& from, CudaAddress weights, CudaStream stream) const;

  /// Plans and compiles for calls of this form, with a tape or without, as CudaScan::prepare() does. Prepare all forms
  /// before workspace_bytes() is asked.
  void prepare(const Forward& form);
  void prepare(const Backward& form);
  void prepare(const Step& form);
  /// As of CudaScan.
  std::size_t workspace_bytes() const;
  std::string explain() const;

  void forward(const Forward& call, CudaAddress workspace, CudaStream stream) const;
  void backward(const Backward& call, CudaAddress workspace, CudaStream stream) const;
  void step(const Step& call, CudaAddress workspace, CudaStream stream) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
