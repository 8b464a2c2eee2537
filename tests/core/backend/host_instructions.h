#pragma once

// What NVRTC declares and the instructions of PTX that kernels use, on a GPU of the host (host_gpu.h): included by the
// text that kernel_on_host.h writes.

#include "host_gpu.h"

namespace host_gpu {

// ---- instructions ---------------------------------------------------------------------------------------------------

/// An operand of an instruction: a value, and where a result goes.
struct Operand {
  std::uint64_t bits = 0;
  void* to = nullptr;
  int bytes = 0;

  unsigned word() const { return static_cast<unsigned>(bits); }
  int number() const { return static_cast<int>(word()); }
  float value() const { return std::bit_cast<float>(word()); }
  char* pointer() const { return reinterpret_cast<char*>(bits); }
  void set(unsigned word) const { std::memcpy(to, &word, static_cast<std::size_t>(bytes)); }
  void set(float value) const { set(std::bit_cast<unsigned>(value)); }
};

template <class T>
Operand in(T value) {
  Operand operand;
  std::memcpy(&operand.bits, &value, sizeof(T));
  operand.bytes = sizeof(T);
  return operand;
}
template <class T>
Operand out(T& value) {
  Operand operand = in(value);
  operand.to = &value;
  return operand;
}

using Instruction = void (*)(const Operand*);

inline float half_to_float(unsigned bits) {
  return static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(bits)));
}
inline unsigned float_to_half(float value) { return std::bit_cast<std::uint16_t>(static_cast<_Float16>(value)); }
inline float bf16_to_float(unsigned bits) { return std::bit_cast<float>((bits & 0xffffu) << 16); }
inline unsigned float_to_bf16(float value) {
  const unsigned bits = std::bit_cast<unsigned>(value);
  if (std::isnan(value)) return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

inline const Words* meet(const char* instruction, const Words& own = {}) { return machine().meet(instruction, own); }

/// D += A B of 16 x 8 values, the summed axis of `depth`; `value` reads a number of a word of factors.
template <int depth, class Value>
void multiply(const char* name, const Operand* o, const Value& value) {
  Words own;
  for (int i = 0; i < 6; ++i) own.word[i] = o[4 + i].word();
  const Words* const all = meet(name, own);
  const int lane = machine().thread().lane(), g = lane / 4, t = lane % 4;
  constexpr int each = depth / 8;  // numbers in a word
  for (int half = 0; half < 2; ++half) {
    for (int column = 0; column < 2; ++column) {
      float sum = o[2 * half + column].value();
      for (int k = 0; k < depth; ++k) {
        const int block = k / (4 * each), at = k % (4 * each);
        const unsigned a = all[4 * g + at / each].word[2 * block + half];
        const unsigned b = all[4 * (2 * t + column) + at / each].word[4 + block];
        sum += value(a, at % each) * value(b, at % each);
      }
      o[2 * half + column].set(sum);
    }
  }
}

template <int matrices, bool transposed>
void load_matrices(const char* name, const Operand* o) {
  const Words* const all = meet(name, {{o[matrices].word()}});
  const int lane = machine().thread().lane();
  for (int m = 0; m < matrices; ++m) {
    const auto row = [&](int r) { return machine().at(all[8 * m + r].word[0]); };
    unsigned word;
    if (transposed) {
      std::uint16_t low, high;
      std::memcpy(&low, row(2 * (lane % 4)) + lane / 4 * 2, 2);
      std::memcpy(&high, row(2 * (lane % 4) + 1) + lane / 4 * 2, 2);
      word = low | static_cast<unsigned>(high) << 16;
    } else {
      std::memcpy(&word, row(lane / 4) + lane % 4 * 4, 4);
    }
    o[m].set(word);
  }
}

inline void store_words(char* to, const Operand* words, int count) {
  for (int i = 0; i < count; ++i) std::memcpy(to + 4 * i, &words[i].bits, 4);
}

inline float min_nan(float a, float b) { return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b); }
inline float max_nan(float a, float b) { return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b); }

/// The instructions by the beginnings of their texts.
inline const std::vector<std::pair<std::string_view, Instruction>>& instructions() {
  using O = const Operand*;
  static const std::vector<std::pair<std::string_view, Instruction>> all = {
      {"griddepcontrol", [](O) {}},
      {"fence.", [](O) {}},
      {"cp.async.bulk.prefetch", [](O) {}},
      {"trap;", [](O) { machine().fail("trap"); }},
      {"cvt.rn.bf16x2.f32", [](O o) { o[0].set(float_to_bf16(o[2].value()) | float_to_bf16(o[1].value()) << 16); }},
      {"cvt.rn.f16x2.f32", [](O o) { o[0].set(float_to_half(o[2].value()) | float_to_half(o[1].value()) << 16); }},
      {"cvt.f32.f16", [](O o) { o[0].set(half_to_float(o[1].word())); }},
      {"rcp.approx", [](O o) { o[0].set(1.0f / o[1].value()); }},
      {"rsqrt.approx", [](O o) { o[0].set(1.0f / std::sqrt(o[1].value())); }},
      {"ex2.approx", [](O o) { o[0].set(std::exp2(o[1].value())); }},
      {"lg2.approx", [](O o) { o[0].set(std::log2(o[1].value())); }},
      {"tanh.approx", [](O o) { o[0].set(std::tanh(o[1].value())); }},
      {"div.full", [](O o) { o[0].set(o[1].value() / o[2].value()); }},
      {"max.NaN", [](O o) { o[0].set(max_nan(o[1].value(), o[2].value())); }},
      {"min.NaN", [](O o) { o[0].set(min_nan(o[1].value(), o[2].value())); }},
      {"st.global.cs.u16", [](O o) { std::memcpy(o[0].pointer(), &o[1].bits, 2); }},
      {"st.global.cs.u32", [](O o) { store_words(o[0].pointer(), o + 1, 1); }},
      {"st.global.cs.v2", [](O o) { store_words(o[0].pointer(), o + 1, 2); }},
      {"st.global.cs.v4", [](O o) { store_words(o[0].pointer(), o + 1, 4); }},
      {"st.relaxed.gpu.global.v4", [](O o) { store_words(o[0].pointer(), o + 1, 4), machine().made_progress(); }},
      {"st.relaxed.gpu.global.u64", [](O o) { std::memcpy(o[0].pointer(), &o[1].bits, 8), machine().made_progress(); }},
      {"ld.relaxed.gpu.global.u64",
       [](O o) {
         std::memcpy(o[0].to, o[1].pointer(), 8);
         machine().yield();
       }},
      {"st.shared.v2", [](O o) { store_words(machine().at(o[0].word()), o + 1, 2); }},
      {"ld.shared.f32", [](O o) { std::memcpy(o[0].to, machine().at(o[1].word()), 4); }},
      {"st.shared.v4", [](O o) { store_words(machine().at(o[0].word()), o + 1, 4); }},
      {"ld.relaxed.gpu.global.v4",
       [](O o) {
         for (int i = 0; i < 4; ++i) std::memcpy(o[i].to, o[4].pointer() + 4 * i, 4);
         machine().yield();
       }},
      {"{\n.reg .pred exists;\nsetp.ne.s32 exists, %5",
       [](O o) {
         if (o[5].number() != 0) store_words(o[0].pointer(), o + 1, 4);
       }},
      {"{\n.reg .pred exists;\nsetp.ne.s32 exists, %2",
       [](O o) {
         if (o[2].number() != 0) machine().copy_later({machine().at(o[0].word()), o[1].pointer(), 16, 16});
       }},
      {"{\n.reg .pred exists;\nsetp.ne.u32 exists, %2",
       [](O o) {
         o[0].set(0u);
         if (o[2].word() != 0) std::memcpy(o[0].to, o[1].pointer(), 4);
       }},
      {"movmatrix.sync.aligned.m8n8.trans",
       [](O o) {
         const Words* const all = meet("movmatrix", {{o[1].word()}});
         const int lane = machine().thread().lane(), row = lane / 4;
         unsigned word = 0;
         for (int i = 0; i < 2; ++i) {
           const int from = lane % 4 * 2 + i;  // row of the value before, whose column is `row`
           word |= (all[from * 4 + row / 2].word[0] >> row % 2 * 16 & 0xffff) << i * 16;
         }
         o[0].set(word);
       }},
      {"cp.async.cg.shared.global",
       [](O o) {
         machine().copy_later({machine().at(o[0].word()), o[1].pointer(), 16, o[2].number()});
       }},
      {"cp.async.ca.shared.global",
       [](O o) {
         machine().copy_later({machine().at(o[0].word()), o[1].pointer(), o[2].number(), o[3].number()});
       }},
      {"cp.async.commit_group", [](O) { machine().commit(); }},
      {"cp.async.wait_group", [](O o) { machine().wait_groups(o[0].word()); }},
      {"bar.sync", [](O o) { machine().meet_block(o[0].number(), o[1].number()); }},
      {"mov.u32 %0, %%cluster_ctarank",
       [](O o) { o[0].set(static_cast<unsigned>(machine().block().number % machine().cluster())); }},
      {"mapa.shared::cluster",
       [](O o) {
         const auto first = static_cast<unsigned>(machine().block().number / machine().cluster() * machine().cluster());
         o[0].set((first + o[2].word()) * kWindow + o[1].word() % kWindow);
       }},
      {"barrier.cluster.arrive",
       [](O) {
         Meeting& meeting = machine().cluster_meeting();
         ++meeting.arrived;
       }},
      {"barrier.cluster.wait",
       [](O) {
         Meeting& meeting = machine().cluster_meeting();
         const int all = machine().cluster() * machine().block().threads, round = meeting.round;
         if (meeting.arrived == all) {
           meeting.arrived = 0, ++meeting.round;
           machine().made_progress();
         }
         while (meeting.round == round) {
           if (meeting.arrived == all) {
             meeting.arrived = 0, ++meeting.round;
             machine().made_progress();
             break;
           }
           machine().yield();
         }
       }},
      {"mbarrier.init", [](O o) { machine().make_barrier(o[0].word(), o[1].number()); }},
      {"mbarrier.arrive.expect_tx",
       [](O o) {
         PhaseBarrier& barrier = machine().barrier(o[0].word());
         barrier.bytes += o[1].number(), --barrier.pending;
         barrier.end_phase();
         machine().made_progress();
       }},
      {"mbarrier.arrive.shared",
       [](O o) {
         PhaseBarrier& barrier = machine().barrier(o[0].word());
         --barrier.pending;
         barrier.end_phase();
         machine().made_progress();
       }},
      {"{\n.reg .pred over;\nmbarrier.try_wait",
       [](O o) {
         const bool over = (machine().barrier(o[1].word()).phase & 1) != (o[2].number() & 1);
         o[0].set(over ? 1u : 0u);
         if (!over) machine().yield();
       }},
      {"st.async",
       [](O o) {
         Words words = {};
         for (int i = 0; i < 4; ++i) words.word[i] = o[1 + i].word();
         machine().store_later(o[0].word(), words, o[5].word());
       }},
      {"ldmatrix.sync.aligned.m8n8.x4.shared", [](O o) { load_matrices<4, false>("ldmatrix.x4", o); }},
      {"ldmatrix.sync.aligned.m8n8.x4.trans", [](O o) { load_matrices<4, true>("ldmatrix.x4.trans", o); }},
      {"ldmatrix.sync.aligned.m8n8.x2.shared", [](O o) { load_matrices<2, false>("ldmatrix.x2", o); }},
      {"mma.sync.aligned.m16n8k16.row.col.f32.bf16",
       [](O o) {
         multiply<16>("mma.bf16", o, [](unsigned word, int i) { return bf16_to_float(i == 0 ? word : word >> 16); });
       }},
      {"mma.sync.aligned.m16n8k16.row.col.f32.f16",
       [](O o) {
         multiply<16>("mma.f16", o,
                      [](unsigned word, int i) { return half_to_float((i == 0 ? word : word >> 16) & 0xffff); });
       }},
      {"mma.sync.aligned.m16n8k8.row.col.f32.tf32",
       [](O o) {
         multiply<8>("mma.tf32", o, [](unsigned word, int) { return std::bit_cast<float>(word & 0xffffe000u); });
       }},
  };
  return all;
}

inline Instruction find(std::string_view text) {
  for (const auto& [begin, instruction] : instructions()) {
    if (text.starts_with(begin)) return instruction;
  }
  throw Fault{"no instruction of the host: " + std::string(text)};
}

}  // namespace host_gpu

// ---- what NVRTC declares --------------------------------------------------------------------------------------------

#define __CUDACC_RTC__
#define __CUDACC__
#define __CUDA_ARCH__ 900
#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

struct HostIndex {
  unsigned x;
};
#define threadIdx (HostIndex{static_cast<unsigned>(host_gpu::machine().thread().number)})
#define blockIdx (HostIndex{static_cast<unsigned>(host_gpu::machine().block().number)})
#define gridDim (HostIndex{static_cast<unsigned>(host_gpu::machine().grid())})

inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, T value) {
  *p = value;
}
/// For places to which one thread adds; of whole numbers any. Threads give way only where they wait.
template <class T>
T atomicAdd(T* to, T value) {
  return std::exchange(*to, *to + value);
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned which) {
  const std::uint64_t both = a | static_cast<std::uint64_t>(b) << 32;
  unsigned word = 0;
  for (int i = 0; i < 4; ++i) word |= static_cast<unsigned>(both >> 8 * (which >> 4 * i & 7) & 0xff) << 8 * i;
  return word;
}
inline unsigned long long __cvta_generic_to_shared(const void* p) { return host_gpu::machine().address_of(p); }
inline void __syncthreads() { host_gpu::machine().meet_block(0, host_gpu::machine().block().threads); }
inline void __syncwarp() { host_gpu::meet("syncwarp"); }
template <class T>
T __shfl_xor_sync(unsigned, T value, int apart) {
  static_assert(sizeof(T) == 4);
  const host_gpu::Words* const all = host_gpu::meet("shfl.bfly", {{std::bit_cast<unsigned>(value)}});
  return std::bit_cast<T>(all[host_gpu::machine().thread().lane() ^ apart].word[0]);
}
inline unsigned __shfl_sync(unsigned, unsigned value, int lane) {
  return host_gpu::meet("shfl.idx", {{value}})[lane].word[0];
}
inline unsigned __reduce_max_sync(unsigned, unsigned value) {
  const host_gpu::Words* const all = host_gpu::meet("redux.max", {{value}});
  for (int i = 0; i < host_gpu::kLanes; ++i) value = std::max(value, all[i].word[0]);
  return value;
}
inline void atomicMax(unsigned* p, unsigned value) { *p = std::max(*p, value); }
inline unsigned __ballot_sync(unsigned, bool flag) {
  const host_gpu::Words* const all = host_gpu::meet("vote.ballot", {{flag ? 1u : 0u}});
  unsigned mask = 0;
  for (int i = 0; i < host_gpu::kLanes; ++i) mask |= all[i].word[0] << i;
  return mask;
}
inline bool __syncthreads_and(bool flag) {
  host_gpu::Meeting& meeting = host_gpu::machine().block().barriers[0];
  bool& all = meeting.all[meeting.round & 1];
  all = flag && (meeting.arrived == 0 || all);
  __syncthreads();
  return all;
}
inline bool __any_sync(unsigned mask, bool flag) { return __ballot_sync(mask, flag) != 0; }
template <class A, class B>
std::common_type_t<A, B> min(A a, B b) {
  return b < a ? b : a;
}
template <class A, class B>
std::common_type_t<A, B> max(A a, B b) {
  return a < b ? b : a;
}
