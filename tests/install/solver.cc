#include <iostream>

#include "penstock/csp.h"

int main() {
  penstock::csp::Model m;
  const auto warps = m.var("warps", {1, 2, 4, 8});
  const auto tile = m.var("tile", penstock::csp::divisors(768));
  m.require("tiles cover the units", warps * tile == 64);
  m.maximise(tile - warps);
  const auto best = m.solve();
  if (!best) return 1;
  std::cout << best->text() << '\n';
  return (*best)[tile] == 64 ? 0 : 1;
}
