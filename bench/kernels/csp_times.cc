#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "csp/propagation.h"
#include "penstock/csp.h"

/// How long the solver takes for problems like those of plans: stated, solved and proved best, in milliseconds. With
/// "bounds", it propagates bounds alone and leaves the holes that divisibility makes in domains to the search.
///   csp_times [RUNS [bounds]]
using namespace penstock;       // NOLINT(google-build-using-namespace)
using namespace penstock::csp;  // NOLINT(google-build-using-namespace)

namespace {

struct Shape {
  Integer heads, head_dim, gates, batch, steps;
};

struct Variables {
  Expression cluster, split_k, warps_n, warps_k, tile_n, tile_b, stages, chunk, threads, registers, shared, ctas;
};

/// A recurrent matrix spread over a cluster's registers, h exchanged through shared memory: 16 variables.
Variables state(Model& m, const Shape& s) {
  const Integer D = s.head_dim, G = s.gates;
  const auto cluster = m.var("cluster", range(1, 16));
  const auto units = m.var("units", divisors(D));  // of a block
  const auto split_k = m.var("split_k", powers_of_two(1, 8));
  const auto warps_n = m.var("warps_n", powers_of_two(1, 16));
  const auto warps_k = m.var("warps_k", powers_of_two(1, 16));
  const auto tile_n = m.var("tile_n", multiples(8, 8, 4096));  // columns of a warp
  const auto tile_k = m.var("tile_k", multiples(16, 16, 4096));
  const auto tile_b = m.var("tile_b", powers_of_two(1, 128));
  const auto stages = m.var("stages", range(1, 4));
  const auto chunk = m.var("chunk", powers_of_two(1, 4096));
  const auto vector = m.var("vector", {1, 2, 4, 8});
  const auto threads = m.var("threads", multiples(32, 32, 1024));
  const auto registers = m.var("registers", multiples(8, 24, 248));
  const auto shared = m.var("shared", range(0, 232448));
  const auto ctas = m.var("ctas", range(1, 132));
  const auto eighths = m.var("eighths_in_shared", range(0, 8));  // of R

  m.require("a cluster holds the head", cluster * units == D * split_k);
  m.require("split K divides the cluster", cluster % split_k == 0);
  m.require("warps cover the columns", warps_n * tile_n == units * G);
  m.require("warps cover K", warps_k * tile_k * split_k == D);
  m.require("threads", threads == warps_n * warps_k * 32);
  m.require("registers hold R",
            registers * 32 >= ceil_div(tile_n * tile_k * (8 - eighths), 16) + tile_n * tile_b / 2 + 40 * 32);
  m.require("registers of a multiprocessor", registers * threads <= 65536);
  m.require("shared memory", shared == stages * tile_b * D * 2 + warps_k * tile_b * units * G * 4 +
                                           chunk * tile_b * units * 2 * G / 8 +
                                           D / split_k * units * G * 2 * eighths / 8);
  m.require("shared memory fits", shared <= 232448);
  m.require("vectors divide the units", units % vector == 0);
  m.require("a chunk is no longer than the sequence", chunk <= s.steps);
  m.require("slices of the batch", ctas == cluster * s.heads * ceil_div(s.batch, tile_b) || ctas == 132);
  m.require("one wave", cluster * s.heads <= 132);
  m.require("one block needs no exchange", implies(cluster == 1, stages == 1));
  return {cluster, split_k, warps_n, warps_k, tile_n, tile_b, stages, chunk, threads, registers, shared, ctas};
}

Model integer_cost(const Shape& s) {
  Model m;
  const Variables v = state(m, s);
  const auto waves = ceil_div(v.cluster * s.heads * ceil_div(s.batch, v.tile_b), v.ctas);
  m.minimise(waves * (600 + select(v.cluster > 1, 900, Expression(0)) + 40 * v.warps_k + v.tile_n * v.tile_b / 4 +
                      s.head_dim * v.tile_b * 2 / (v.warps_n * 8) + 2000 / v.chunk + 100 / v.stages));
  return m;
}

Model real_cost(const Shape& s) {
  Model m;
  const Variables v = state(m, s);
  const auto blocks = v.cluster * s.heads * ceil_div(s.batch, v.tile_b);
  m.minimise([=](const Box& at) {
    const Interval waves = at(blocks) / at(v.ctas);
    const Interval products = at(v.tile_n) * at(v.tile_b) * (static_cast<double>(s.head_dim) / 512.0) / at(v.warps_k);
    const Interval exchange = max(Interval(0), at(v.cluster) - 1) * 120.0 + at(v.split_k) * 80.0;
    return max(Interval(1), waves) * (300.0 + products + exchange + 2000.0 / at(v.chunk) + 100.0 / at(v.stages));
  });
  return m;
}

constexpr double most_seconds = 20;

template <class Make>
void measure(const std::string& name, int runs, Make make) {
  std::vector<double> times;
  std::string answer;
  for (int i = 0; i < runs; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    Model m = make();
    m.limit({.seconds = most_seconds});
    try {
      const auto best = m.solve();
      answer = best ? fmt::format("{:.6g}: {}", best->cost(), best->text()) : "no solution";
    } catch (const LimitReached& limit) {
      answer = limit.what();
      runs = 1;
    }
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  const std::size_t n = times.size();
  fmt::print("{:<34} {:8.3f} ms  ({:.3f} to {:.3f})  {}\n", name, times[n / 2], times[n / 10], times[n * 9 / 10],
             answer);
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::max(1, std::atoi(argv[1])) : 50;
  tries_values = argc < 3 || std::string_view(argv[2]) != "bounds";
  const Shape shapes[] = {{12, 64, 4, 16, 1024}, {4, 128, 4, 16, 1024}, {1, 512, 4, 16, 1024},
                          {1, 768, 4, 64, 1024}, {1, 768, 3, 16, 1024}, {1, 1024, 4, 16, 1024},
                          {1, 2048, 4, 16, 512}, {1, 1000, 4, 7, 333},  {1, 4096, 4, 16, 1024}};
  for (const Shape& s : shapes) {
    const std::string name = fmt::format("{} x {}, {} gates, batch {}", s.heads, s.head_dim, s.gates, s.batch);
    measure(name + ", whole", runs, [&] { return integer_cost(s); });
    measure(name + ", real", runs, [&] { return real_cost(s); });
  }
}
