#pragma once

// The hash functions of xxHash, compiled into whoever includes this.
#define XXH_INLINE_ALL
// Its functions insist on being inlined where they are called through pointers, which -Og does not do.
#define XXH_NO_INLINE_HINTS 1
#include <xxhash.h>
