#include "network/trace.h"

#include "network/builder.h"

namespace penstock::network {

Status trace(const Network& network, std::span<const Shape> inputs, Trace& trace) {
  const auto impl = std::make_shared<Program::Impl>();
  Builder builder(*impl, network);
  PENSTOCK_TRY(builder.build(inputs));
  trace.facts.clear();
  for (std::size_t i = 0; i < network.values.size(); ++i) trace.facts.push_back(builder.fact_of(static_cast<int>(i)));
  trace.owner = impl;
  return {};
}

}  // namespace penstock::network
