#pragma once

#include <string>
#include <vector>

#include "penstock/cell.h"

/// The built-in cells, and some others, written as a user writes cells.
namespace penstock::test {

struct WrittenCell {
  CellDefinition definition;
  CellEquations equations;
};

inline CellDefinition definition_of(std::string name, std::vector<std::string> states, int gates) {
  CellDefinition definition;
  definition.name = std::move(name);
  definition.states = std::move(states);
  definition.gates = gates;
  return definition;
}

inline WrittenCell written_lstm(const std::string& name = "written-lstm") {
  CellDefinition definition = definition_of(name, {"h", "c"}, 4);
  definition.keep_gate = 1;
  return {definition, [](const CellSymbols& in) -> std::vector<CellValue> {
            const CellValue i = sigmoid(in.wx[0] + in.rh[0]), f = sigmoid(in.wx[1] + in.rh[1]);
            const CellValue g = tanh(in.wx[2] + in.rh[2]), o = sigmoid(in.wx[3] + in.rh[3]);
            const CellValue c = f * in.s[1] + i * g;
            return {o * tanh(c), c};
          }};
}

inline WrittenCell written_gru(const std::string& name = "written-gru") {
  CellDefinition definition = definition_of(name, {"h"}, 3);
  definition.keep_gate = 1;
  return {definition, [](const CellSymbols& in) -> std::vector<CellValue> {
            const CellValue r = sigmoid(in.wx[0] + in.rh[0]), z = sigmoid(in.wx[1] + in.rh[1]);
            const CellValue n = tanh(in.wx[2] + r * in.rh[2]);
            return {(1.0 - z) * n + z * in.s[0]};
          }};
}

inline WrittenCell written_elman_relu(const std::string& name = "written-elman-relu") {
  return {definition_of(name, {"h"}, 1),
          [](const CellSymbols& in) -> std::vector<CellValue> { return {relu(in.wx[0] + in.rh[0])}; }};
}

inline WrittenCell written_slstm(const std::string& name = "written-slstm") {
  CellDefinition definition = definition_of(name, {"h", "c", "n", "m"}, 4);
  definition.keep_gate = 1;
  definition.spread_memory = true;
  return {definition, [](const CellSymbols& in) -> std::vector<CellValue> {
            const CellValue input = in.wx[0] + in.rh[0], forget = in.wx[1] + in.rh[1];
            const CellValue carried = in.s[3] - softplus(-forget), empty = equal(in.s[2], 0.0);
            const CellValue m = where(empty, input, max(input, carried));
            const CellValue i = exp(input - m), f = where(empty, 0.0, exp(carried - m));
            const CellValue c = f * in.s[1] + i * tanh(in.wx[2] + in.rh[2]), n = f * in.s[2] + i;
            return {sigmoid(in.wx[3] + in.rh[3]) * c / n, c, n, m};
          }};
}

inline WrittenCell written_mingru(const std::string& name = "written-mingru") {
  CellDefinition definition = definition_of(name, {"h"}, 2);
  definition.scan = true;
  definition.overwrite_gate = 0;
  definition.spread_memory = true;
  return {definition, [](const CellSymbols& in) -> std::vector<CellValue> {
            return {sigmoid(-in.wx[0]), sigmoid(in.wx[0]) * in.wx[1]};
          }};
}

/// An LSTM whose gates see the cell state (Gers and Schmidhuber 2000).
inline WrittenCell written_peephole(const std::string& name = "written-peephole") {
  CellDefinition definition = definition_of(name, {"h", "c"}, 4);
  definition.learnt = {{"i", 0.1}, {"f", 0.0}, {"o", -0.2}};
  definition.keep_gate = 1;
  return {definition, [](const CellSymbols& in) -> std::vector<CellValue> {
            const CellValue i = sigmoid(in.wx[0] + in.rh[0] + in.p[0] * in.s[1]);
            const CellValue f = sigmoid(in.wx[1] + in.rh[1] + in.p[1] * in.s[1]);
            const CellValue c = f * in.s[1] + i * tanh(in.wx[2] + in.rh[2]);
            const CellValue o = sigmoid(in.wx[3] + in.rh[3] + in.p[2] * c);
            return {o * tanh(c), c};
          }};
}

/// An LSTM whose output leaks, with a gate of its own for that: as many gates as a cell may have.
inline WrittenCell written_leaky_lstm(const std::string& name = "written-leaky-lstm") {
  CellDefinition definition = definition_of(name, {"h", "c"}, 5);
  definition.keep_gate = 1;
  return {definition, [](const CellSymbols& in) -> std::vector<CellValue> {
            const auto gate = [&](std::size_t g) { return sigmoid(in.wx[g] + in.rh[g]); };
            const CellValue c = gate(1) * in.s[1] + gate(0) * tanh(in.wx[2] + in.rh[2]), keep = gate(4);
            return {keep * in.s[0] + (1.0 - keep) * gate(3) * tanh(c), c};
          }};
}

inline CellValue normalised(const CellValue& x, const CellValue& gain, const CellValue& shift) {
  const CellValue centred = x - mean(x);
  return gain * centred / sqrt(mean(centred * centred) + 1e-5) + shift;
}

/// An LSTM whose parts of R h and whose cell state are normalised. `peepholes`: its gates read the cell state, too.
inline WrittenCell norm_lstm(const std::string& name, bool peepholes) {
  CellDefinition definition = definition_of(name, {"h", "c"}, 4);
  definition.learnt = {{"gi", 1.0}, {"gf", 0.9}, {"gg", 1.1}, {"go", 1.0}, {"gc", 0.8}, {"sc", 0.1}};
  if (peepholes) definition.learnt.insert(definition.learnt.end(), {{"i", 0.1}, {"f", 0.0}, {"o", -0.2}});
  definition.keep_gate = 1;
  return {definition, [=](const CellSymbols& in) -> std::vector<CellValue> {
            const auto gate = [&](std::size_t g) { return in.wx[g] + normalised(in.rh[g], in.p[g], 0.0); };
            const auto seen = [&](std::size_t g, std::size_t k, const CellValue& c) {
              return sigmoid(peepholes ? gate(g) + in.p[k] * c : gate(g));
            };
            const CellValue c = seen(1, 7, in.s[1]) * in.s[1] + seen(0, 6, in.s[1]) * tanh(gate(2));
            return {seen(3, 8, c) * tanh(normalised(c, in.p[4], in.p[5])), c};
          }};
}
inline WrittenCell written_norm_lstm(const std::string& name = "written-norm-lstm") { return norm_lstm(name, false); }
inline WrittenCell written_norm_peephole(const std::string& name = "written-norm-peephole") {
  return norm_lstm(name, true);
}

/// A leaky integrator whose decay is learnt for each unit, with a learnt gain of its input.
inline WrittenCell written_leaky(const std::string& name = "written-leaky") {
  CellDefinition definition = definition_of(name, {"h"}, 2);
  definition.scan = true;
  definition.learnt = {{"decay", 1.0}, {"gain", 0.5}};
  return {definition, [](const CellSymbols& in) -> std::vector<CellValue> {
            const CellValue a = sigmoid(in.p[0] + in.wx[0]);
            return {a, (1.0 - a) * tanh(in.p[1] * in.wx[1])};
          }};
}

}  // namespace penstock::test
