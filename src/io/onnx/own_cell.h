#pragma once

#include <functional>
#include <vector>

#include "formula/formula.h"
#include "io/onnx/symbol.h"

namespace penstock::io {

/// Writes what the roots of a formula need as nodes of ONNX. `leaf` returns the symbol of a leaf; it is never asked for
/// constants. `mean` writes a mean over the units of each head. Returns the roots, which may be constants.
std::vector<Symbol> write_formula(const formula::Formula& formula, const std::vector<formula::NodeId>& roots,
                                  const std::function<Symbol(formula::Operation, int)>& leaf,
                                  const std::function<Symbol(const Symbol&)>& mean = {});

}  // namespace penstock::io
