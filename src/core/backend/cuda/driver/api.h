#pragma once

#include <cstddef>
#include <cstdint>

/// Functions that Penstock calls in CUDA's driver, NVRTC and cuBLASLt. The declarations are our own, so that a build
/// needs no toolkit and is the same on every machine. The libraries are opened on first use.
namespace penstock::cuda {

using Result = int;  // CUresult, nvrtcResult and cublasStatus_t alike: 0 is success
using DeviceAddress = std::uint64_t;

using ContextHandle = struct ContextTag*;
using ModuleHandle = struct ModuleTag*;
using FunctionHandle = struct FunctionTag*;
using StreamHandle = struct StreamTag*;
using EventHandle = struct EventTag*;
using PoolHandle = struct PoolTag*;
using GraphHandle = struct GraphTag*;
using GraphExecHandle = struct GraphExecTag*;
using ProgramHandle = struct ProgramTag*;
using BlasHandle = struct BlasTag*;
using BlasProduct = struct BlasProductTag*;        // cublasLtMatmulDesc_t
using BlasLayout = struct BlasLayoutTag*;          // cublasLtMatrixLayout_t
using BlasPreference = struct BlasPreferenceTag*;  // cublasLtMatmulPreference_t

/// Values of CUresult that Penstock tells apart.
enum : Result {
  result_success = 0,
  result_out_of_memory = 2,
  result_no_device = 100,
  result_invalid_cluster = 912,
};

/// Values of CUdevice_attribute.
enum DeviceAttribute : int {
  attribute_shared_memory_per_block = 8,
  attribute_clock_rate = 13,
  attribute_multiprocessors = 16,
  attribute_l2_bytes = 38,
  attribute_threads_per_multiprocessor = 39,
  attribute_compute_major = 75,
  attribute_compute_minor = 76,
  attribute_shared_memory_per_multiprocessor = 81,
  attribute_registers_per_multiprocessor = 82,
  attribute_cooperative_launch = 95,
  attribute_shared_memory_per_block_optin = 97,
  attribute_memory_pools = 115,
  attribute_cluster_launch = 120,
};

/// Values of CUfunction_attribute.
enum FunctionAttribute : int {
  function_shared_bytes = 1,
  function_local_bytes = 3,
  function_registers = 4,
  function_max_dynamic_shared_bytes = 8,
  function_any_cluster_size = 14,  // more than the eight blocks that every chip with clusters allows
};

/// CUlaunchAttribute, as far as Penstock uses it.
struct LaunchAttribute {
  int id = 0;  // values of CUlaunchAttributeID: below
  int unused = 0;
  unsigned value[16] = {};  // a number, or the three sizes of a cluster
};
enum : int { launch_cooperative = 2, launch_cluster = 4, launch_early = 6 };

/// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  StreamHandle stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};

/// CUtensorMap: what a bulk copy knows of a tensor in global memory.
struct alignas(64) TensorMap {
  std::uint64_t content[16] = {};
};
/// Values of CUtensorMapDataType, CUtensorMapSwizzle and CUtensorMapL2promotion.
enum : int { map_f16 = 6, map_f32 = 7, map_bf16 = 9 };
enum : int { map_swizzle_none, map_swizzle_32, map_swizzle_64, map_swizzle_128 };
enum : int { map_promote_none, map_promote_64, map_promote_128, map_promote_256 };

enum : unsigned { stream_non_blocking = 1, event_default = 0, event_disable_timing = 2, event_interprocess = 4 };
enum : int { capture_thread_local = 1 };
enum : int { pool_release_threshold = 4 };
enum : int { pointer_device = 9 };  // a value of CUpointer_attribute

/// Values of cublasComputeType_t and cudaDataType_t.
enum : int { blas_compute_f32 = 68, blas_compute_tf32 = 77 };
enum BlasType : int { blas_f32 = 0, blas_f16 = 2, blas_bf16 = 14 };
/// Values of cublasLtMatmulDescAttributes_t, cublasLtEpilogue_t, cublasOperation_t and
/// cublasLtMatmulPreferenceAttributes_t.
enum : int { blas_transpose_a = 3, blas_transpose_b = 4, blas_epilogue = 7, blas_bias_pointer = 8 };
enum : int { blas_epilogue_none = 1, blas_epilogue_bias = 4, blas_epilogue_sum_b = 512 };
enum : int { blas_as_it_is = 0, blas_transposed = 1 };
enum : int {
  blas_max_workspace = 1,
  blas_reductions = 3,
  blas_alignment_a = 5,
  blas_alignment_b,
  blas_alignment_c,
  blas_alignment_d
};
enum : Result { blas_no_memory = 3, blas_not_supported = 15 };

/// cublasLtMatmulAlgo_t and cublasLtMatmulHeuristicResult_t.
struct BlasAlgorithm {
  std::uint64_t data[8] = {};
};
struct BlasChoice {
  BlasAlgorithm algorithm;
  std::size_t workspace_bytes = 0;
  Result state = 0;
  float waves = 0;
  int reserved[4] = {};
};
static_assert(sizeof(BlasChoice) == 96, "laid out as cuBLASLt expects it");

/// CUmemPoolProps.
struct PoolProperties {
  int allocation_type = 1;  // pinned to the device
  int handle_types = 0;     // not shared with other processes
  int location_type = 1;    // a device
  int location_id = 0;
  void* security = nullptr;
  std::size_t max_bytes = 0;
  unsigned char reserved[56] = {};
};
static_assert(sizeof(PoolProperties) == 88, "laid out as the driver expects it");

// X(member, exported symbol, result type, parameters)
// clang-format off
#define PENSTOCK_CUDA_DRIVER(X)                                                                                       \
  X(init, cuInit, (unsigned))                                                                                         \
  X(driver_version, cuDriverGetVersion, (int*))                                                                       \
  X(error_name, cuGetErrorName, (Result, const char**))                                                               \
  X(error_text, cuGetErrorString, (Result, const char**))                                                             \
  X(device_count, cuDeviceGetCount, (int*))                                                                           \
  X(device_get, cuDeviceGet, (int*, int))                                                                             \
  X(device_name, cuDeviceGetName, (char*, int, int))                                                                  \
  X(device_attribute, cuDeviceGetAttribute, (int*, int, int))                                                         \
  X(device_memory, cuDeviceTotalMem_v2, (std::size_t*, int))                                                          \
  X(primary_retain, cuDevicePrimaryCtxRetain, (ContextHandle*, int))                                                  \
  X(context_set, cuCtxSetCurrent, (ContextHandle))                                                                    \
  X(context_get, cuCtxGetCurrent, (ContextHandle*))                                                                   \
  X(context_synchronize, cuCtxSynchronize, ())                                                                        \
  X(pointer_get, cuPointerGetAttribute, (void*, int, DeviceAddress))                                                  \
  X(memory_info, cuMemGetInfo_v2, (std::size_t*, std::size_t*))                                                       \
  X(module_load, cuModuleLoadData, (ModuleHandle*, const void*))                                                      \
  X(module_unload, cuModuleUnload, (ModuleHandle))                                                                    \
  X(module_function, cuModuleGetFunction, (FunctionHandle*, ModuleHandle, const char*))                               \
  X(function_get, cuFuncGetAttribute, (int*, int, FunctionHandle))                                                    \
  X(function_set, cuFuncSetAttribute, (FunctionHandle, int, int))                                                     \
  X(launch, cuLaunchKernel, (FunctionHandle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,    \
                             StreamHandle, void**, void**))                                                           \
  X(launch_with, cuLaunchKernelEx, (const LaunchConfig*, FunctionHandle, void**, void**))                             \
  X(resident_blocks, cuOccupancyMaxActiveBlocksPerMultiprocessor, (int*, FunctionHandle, int, std::size_t))           \
  X(resident_clusters, cuOccupancyMaxActiveClusters, (int*, FunctionHandle, const LaunchConfig*))                     \
  X(tensor_map_encode, cuTensorMapEncodeTiled, (TensorMap*, int, unsigned, void*, const std::uint64_t*,               \
                                                const std::uint64_t*, const unsigned*, const unsigned*, int, int, int,\
                                                int))                                                                 \
  X(stream_create, cuStreamCreate, (StreamHandle*, unsigned))                                                         \
  X(stream_destroy, cuStreamDestroy_v2, (StreamHandle))                                                               \
  X(stream_synchronize, cuStreamSynchronize, (StreamHandle))                                                          \
  X(capture_begin, cuStreamBeginCapture_v2, (StreamHandle, int))                                                      \
  X(capture_end, cuStreamEndCapture, (StreamHandle, GraphHandle*))                                                    \
  X(graph_instantiate, cuGraphInstantiateWithFlags, (GraphExecHandle*, GraphHandle, unsigned long long))              \
  X(graph_launch, cuGraphLaunch, (GraphExecHandle, StreamHandle))                                                     \
  X(graph_exec_destroy, cuGraphExecDestroy, (GraphExecHandle))                                                        \
  X(graph_destroy, cuGraphDestroy, (GraphHandle))                                                                     \
  X(event_create, cuEventCreate, (EventHandle*, unsigned))                                                            \
  X(event_destroy, cuEventDestroy_v2, (EventHandle))                                                                  \
  X(event_record, cuEventRecord, (EventHandle, StreamHandle))                                                         \
  X(event_synchronize, cuEventSynchronize, (EventHandle))                                                             \
  X(stream_wait, cuStreamWaitEvent, (StreamHandle, EventHandle, unsigned))                                             \
  X(host_allocate, cuMemHostAlloc, (void**, std::size_t, unsigned))                                                   \
  X(host_free, cuMemFreeHost, (void*))                                                                                \
  X(event_elapsed, cuEventElapsedTime, (float*, EventHandle, EventHandle))                                            \
  X(pool_create, cuMemPoolCreate, (PoolHandle*, const PoolProperties*))                                               \
  X(pool_set, cuMemPoolSetAttribute, (PoolHandle, int, void*))                                                        \
  X(allocate_async, cuMemAllocFromPoolAsync, (DeviceAddress*, std::size_t, PoolHandle, StreamHandle))                 \
  X(free_async, cuMemFreeAsync, (DeviceAddress, StreamHandle))                                                        \
  X(copy_to_device, cuMemcpyHtoDAsync_v2, (DeviceAddress, const void*, std::size_t, StreamHandle))                    \
  X(copy_to_host, cuMemcpyDtoHAsync_v2, (void*, DeviceAddress, std::size_t, StreamHandle))                            \
  X(copy_on_device, cuMemcpyDtoDAsync_v2, (DeviceAddress, DeviceAddress, std::size_t, StreamHandle))                  \
  X(fill_bytes, cuMemsetD8Async, (DeviceAddress, unsigned char, std::size_t, StreamHandle))                         \
  X(fill_words, cuMemsetD32Async, (DeviceAddress, unsigned, std::size_t, StreamHandle))                             \
  X(fill_rows, cuMemsetD2D16Async, (DeviceAddress, std::size_t, unsigned short, std::size_t, std::size_t,           \
                                    StreamHandle))

#define PENSTOCK_CUDA_NVRTC(X)                                                                                        \
  X(version, nvrtcVersion, (int*, int*))                                                                              \
  X(create, nvrtcCreateProgram, (ProgramHandle*, const char*, const char*, int, const char* const*,                   \
                                 const char* const*))                                                                 \
  X(destroy, nvrtcDestroyProgram, (ProgramHandle*))                                                                   \
  X(compile, nvrtcCompileProgram, (ProgramHandle, int, const char* const*))                                           \
  X(log_size, nvrtcGetProgramLogSize, (ProgramHandle, std::size_t*))                                                  \
  X(log, nvrtcGetProgramLog, (ProgramHandle, char*))                                                                  \
  X(cubin_size, nvrtcGetCUBINSize, (ProgramHandle, std::size_t*))                                                     \
  X(cubin, nvrtcGetCUBIN, (ProgramHandle, char*))                                                                     \
  X(arch_count, nvrtcGetNumSupportedArchs, (int*))                                                                    \
  X(archs, nvrtcGetSupportedArchs, (int*))

#define PENSTOCK_CUDA_BLAS(X)                                                                                         \
  X(create, cublasLtCreate, (BlasHandle*))                                                                            \
  X(product_create, cublasLtMatmulDescCreate, (BlasProduct*, int, int))                                               \
  X(product_destroy, cublasLtMatmulDescDestroy, (BlasProduct))                                                        \
  X(product_set, cublasLtMatmulDescSetAttribute, (BlasProduct, int, const void*, std::size_t))                        \
  X(layout_create, cublasLtMatrixLayoutCreate, (BlasLayout*, int, std::uint64_t, std::uint64_t, std::int64_t))        \
  X(layout_destroy, cublasLtMatrixLayoutDestroy, (BlasLayout))                                                        \
  X(preference_create, cublasLtMatmulPreferenceCreate, (BlasPreference*))                                             \
  X(preference_destroy, cublasLtMatmulPreferenceDestroy, (BlasPreference))                                            \
  X(preference_set, cublasLtMatmulPreferenceSetAttribute, (BlasPreference, int, const void*, std::size_t))            \
  X(choose, cublasLtMatmulAlgoGetHeuristic, (BlasHandle, BlasProduct, BlasLayout, BlasLayout, BlasLayout, BlasLayout, \
                                             BlasPreference, int, BlasChoice*, int*))                                 \
  X(check_choice, cublasLtMatmulAlgoCheck, (BlasHandle, BlasProduct, BlasLayout, BlasLayout, BlasLayout, BlasLayout,  \
                                            const BlasAlgorithm*, BlasChoice*))                                       \
  X(multiply, cublasLtMatmul, (BlasHandle, BlasProduct, const void*, const void*, BlasLayout, const void*, BlasLayout,\
                               const void*, const void*, BlasLayout, void*, BlasLayout, const BlasAlgorithm*, void*,  \
                               std::size_t, StreamHandle))
// clang-format on

#define PENSTOCK_CUDA_MEMBER(member, exported, parameters) Result(*member) parameters = nullptr;
#define PENSTOCK_CUDA_VISIT(member, exported, parameters) visit(#exported, member);

/// The driver's functions; all of them, or load_driver() has thrown.
struct DriverApi {
  PENSTOCK_CUDA_DRIVER(PENSTOCK_CUDA_MEMBER)
  template <class Visit>
  void for_each(const Visit& visit) {
    PENSTOCK_CUDA_DRIVER(PENSTOCK_CUDA_VISIT)
  }
};

struct NvrtcApi {
  PENSTOCK_CUDA_NVRTC(PENSTOCK_CUDA_MEMBER)
  template <class Visit>
  void for_each(const Visit& visit) {
    PENSTOCK_CUDA_NVRTC(PENSTOCK_CUDA_VISIT)
  }
};

struct BlasApi {
  PENSTOCK_CUDA_BLAS(PENSTOCK_CUDA_MEMBER)
  template <class Visit>
  void for_each(const Visit& visit) {
    PENSTOCK_CUDA_BLAS(PENSTOCK_CUDA_VISIT)
  }
};

#undef PENSTOCK_CUDA_MEMBER
#undef PENSTOCK_CUDA_VISIT

}  // namespace penstock::cuda
