#pragma once

#include <functional>
#include <new>
#include <string>

#include "base/check.h"
#include "base/free_memory.h"
#include "penstock/device.h"

/// Errors for work that needs more memory than there is.
namespace penstock::nn {

/// Parts of the message about too little memory.
struct MemoryNeed {
  std::string work;                    ///< Name of the work: "a training step of 64 x 512"
  std::function<std::size_t()> bytes;  ///< Returns the bytes that the work needs; called only for a message
  Message remedy;                      ///< Advice: "the option 'batch' lowers that"
};

/// Throws Error(out_of_memory) with the needed bytes, the free memory (`reason`) and the advice.
[[noreturn]] void fail_for_memory(Device device, const MemoryNeed& need, const std::string& reason);

/// Runs `work`, which allocates memory of a device or the host. If memory is short, throws Error(out_of_memory) with
/// the MemoryNeed that `need` returns.
template <class Need, class Work>
decltype(auto) with_enough_memory(Device device, const Need& need, const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    fail_for_memory(device, need(), fmt::format("{} MB of the host's are free", free_memory() >> 20));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
    fail_for_memory(device, need(), error.what());
  }
}

}  // namespace penstock::nn
