// How the headers of this folder declare functions, which both the host and NVRTC compile.
#pragma once

#ifdef __CUDACC__
#define PENSTOCK_LAYOUT __device__ constexpr
#else
#define PENSTOCK_LAYOUT constexpr
#endif
