#pragma once

#include <string>

#include "plan/machine.h"

namespace penstock::cpu {

/// This machine's CPU, as the system and the chip describe it, with the instruction set in use. Stays as it is until
/// the same thread asks again.
const plan::CpuModel& machine();

/// Returns the processor's name as Linux gives it; empty on other systems.
std::string processor_name();

}  // namespace penstock::cpu
