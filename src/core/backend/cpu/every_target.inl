// Sources of engines include this in front of their first HWY_BEFORE_NAMESPACE(): the standard headers of the texts
// (.inl) that follow, and Highway, which compiles the source, named by HWY_TARGET_INCLUDE, once per instruction set.
#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "backend/cpu/isa.h"
#include "plan/cpu/narrow_heads.h"

#include <hwy/foreach_target.h>  // must come before highway.h

#include <hwy/cache_control.h>
#include <hwy/highway.h>
