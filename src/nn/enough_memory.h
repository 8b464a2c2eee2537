#pragma once

#include <functional>
#include <new>
#include <string>

#include "base/check.h"
#include "base/free_memory.h"
#include "penstock/device.h"

namespace penstock::nn {

/// What an error says where there is too little memory.
struct MemoryNeed {
  std::string work;                    ///< "a training step of 64 x 512"
  std::function<std::size_t()> bytes;  ///< Of the whole work; asked only then
  std::string remedy;                  ///< "the option 'batch' lowers that"
};

/// Throws Error(out_of_memory): what is needed, what there is (`reason`) and what lowers it.
[[noreturn]] void fail_for_memory(Device device, const MemoryNeed& need, const std::string& reason);

/// Runs work that takes memory of a device or of the host. `need` gives the MemoryNeed of an error.
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
