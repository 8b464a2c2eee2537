#include <iostream>
#include <vector>

#include "penstock/penstock.h"

int main() {
  const penstock::Recurrent<float> layer({.cell = "mingru", .input_size = 2, .hidden_size = 3});
  const std::vector<float> x(5 * 2, 1.0f);
  std::vector<float> y(5 * 3);
  layer.forward({.rows = 1, .steps = 5}, penstock::SequenceView<const float>::batch_first(x.data(), 5, 2),
                penstock::SequenceView<float>::batch_first(y.data(), 5, 3), nullptr, nullptr);
  std::cout << "Penstock " << PENSTOCK_VERSION << ": h = " << y.back() << '\n';
  return y.back() != 0.0f ? 0 : 1;
}
