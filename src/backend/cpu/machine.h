#pragma once

#include "plan/machine.h"

namespace penstock::cpu {

/// This machine's CPU, as the system and the chip describe it, with the instruction set in use. Stays as it is until
/// the same thread asks again.
const plan::CpuModel& machine();

}  // namespace penstock::cpu
