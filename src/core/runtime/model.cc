#include "runtime/model.h"

#include "backend/cpu/dispatch_target.h"

namespace penstock::runtime {

bool Model::choose_kernels(Failure& failure) {
  const cpu::TargetInUse* const target = cpu::target_in_use();
  if (target != nullptr) {
    instruction_set = target->name;
    return true;
  }
  return failure.set(PENSTOCK_UNSUPPORTED,
                     "PENSTOCK_ISA names an instruction set that this machine or this build "
                     "does not have: unset it");
}

}  // namespace penstock::runtime
