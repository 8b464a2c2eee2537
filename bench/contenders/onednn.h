#pragma once

#include <memory>

#include "bench/contenders/contender.h"

namespace penstock::bench {

/// oneDNN's own recurrent primitives, in this process: "onednn".
Peer onednn();

/// Weights are packed before the clock runs, in the layout that the primitive asks for. Throws NotOffered.
std::unique_ptr<Contender> make_onednn(const Problem& problem);

}  // namespace penstock::bench
