#include <iostream>

#include "penstock/penstock.h"

int main() {
  std::cout << "Penstock " << PENSTOCK_VERSION << '\n';
  for (const auto& cell : penstock::cells()) std::cout << cell.name << ": " << cell.description << '\n';
  return penstock::cells().empty() ? 1 : 0;
}
