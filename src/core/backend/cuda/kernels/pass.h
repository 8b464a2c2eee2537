// How the host tells a kernel what it decided before NVRTC compiles it: the kernel's text begins with a constant kPass,
// a struct of dense/pass.h or scan/pass.h, which the host has filled. All fields are ints, so that the host can write
// them in the order of their declaration (pass_constant() of runtime/kernel.h); a flag is 0 or 1.
#pragma once

/// Says which struct kPass is. An editor, which reads a file without the text before it, sees one without values.
#ifdef __CUDACC_RTC__
#define PENSTOCK_PASS(type) static_assert(sizeof(static_cast<const type*>(&kPass)) != 0);
#else
#define PENSTOCK_PASS(type) constexpr type kPass = {};
#endif
