#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/types.h"

/// Cells of your own: the equations of one step, written once as a function of symbols. Penstock traces the function,
/// derives its backward pass, and runs it in the same engines as the built-in cells. See docs/custom_cells.md.
namespace penstock {

namespace custom {
class ExpressionGraph;
}

/// A symbol in the equations of a cell: the value of one unit at one step. Numbers convert to constants. Its functions
/// are found by argument-dependent lookup: write exp(x), without a namespace.
class CellValue {
 public:
  CellValue(double constant) : constant_(constant) {}  // NOLINT(google-explicit-constructor)
  CellValue(custom::ExpressionGraph& graph, int node) : graph_(&graph), node_(node) {}

  /// Used by the tracer: the symbol's node, in a graph that constants then belong to.
  int node_in(custom::ExpressionGraph& graph) const;
  custom::ExpressionGraph* graph() const { return graph_; }

  friend CellValue operator+(CellValue a, CellValue b);
  friend CellValue operator-(CellValue a, CellValue b);
  friend CellValue operator*(CellValue a, CellValue b);
  friend CellValue operator/(CellValue a, CellValue b);
  friend CellValue operator-(CellValue x);

  /// a b + c with one rounding.
  friend CellValue multiply_add(CellValue a, CellValue b, CellValue c);
  /// e^x; saturates at e^-87.33 and e^87.3 (in double at e^-707 and e^707, on a GPU at e^-86 and e^86).
  friend CellValue exp(CellValue x);
  friend CellValue log(CellValue x);
  friend CellValue tanh(CellValue x);
  friend CellValue sigmoid(CellValue x);
  friend CellValue softplus(CellValue x);
  friend CellValue relu(CellValue x);
  friend CellValue erf(CellValue x);
  /// x Phi(x) with the normal distribution function Phi.
  friend CellValue gelu(CellValue x);
  friend CellValue sin(CellValue x);
  friend CellValue cos(CellValue x);
  friend CellValue sqrt(CellValue x);
  friend CellValue abs(CellValue x);
  /// Returns the smaller value. In a tie, the gradient of min and max goes to a.
  friend CellValue min(CellValue a, CellValue b);
  friend CellValue max(CellValue a, CellValue b);
  friend CellValue clamp(CellValue x, CellValue low, CellValue high);
  /// Comparisons are 1 or 0 and have no gradient.
  friend CellValue less(CellValue a, CellValue b);
  friend CellValue less_equal(CellValue a, CellValue b);
  friend CellValue equal(CellValue a, CellValue b);
  /// a where the condition is not 0, else b.
  friend CellValue where(CellValue condition, CellValue a, CellValue b);
  /// The mean over all units of a head, for dense cells on CPUs.
  friend CellValue mean(CellValue x);

 private:
  custom::ExpressionGraph* graph_ = nullptr;
  int node_ = -1;
  double constant_ = 0;
};

/// The symbols that the equations of a cell read.
struct CellSymbols {
  std::vector<CellValue> wx;  ///< [G] W x + bias_ih
  std::vector<CellValue> rh;  ///< [G] R h + bias_hh; empty for scan cells
  std::vector<CellValue> s;   ///< [S] states that enter the step; empty for scan cells
  std::vector<CellValue> p;   ///< [K] learnt vectors, one value per unit
};

/// A vector of one value per unit that training learns.
struct CellVector {
  std::string name;
  double initial = 0.0;
};

/// Definition of a cell besides its equations.
struct CellDefinition {
  std::string name;  ///< For RecurrentSpec::cell, files and `--cell`; characters a-z, 0-9, '-' and '_'.
  std::string description;
  std::vector<std::string> states = {"h"};  ///< State 0 is the output. At most 4.
  int gates = 1;                            ///< At most 5; 3 for scan cells.
  bool scan = false;                        ///< The equations return a and b of h' = a h + b.
  std::vector<CellVector> learnt = {};      ///< At most 16.
  int keep_gate = -1;                       ///< A gate that starts with a bias that makes the memory longer, or -1.
  int overwrite_gate = -1;                  ///< A gate that starts with a bias that makes the memory shorter, or -1.
  bool spread_memory = false;               ///< These biases differ from unit to unit, so that time constants do.
};

/// Returns the next states, state 0 first, or a and b of a scan cell.
using CellEquations = std::function<std::vector<CellValue>(const CellSymbols& symbols)>;

/// Makes a cell known by its name to the whole process. Defining the same cell again does nothing. Throws
/// Error(invalid_argument) for a name that another cell has and for wrong equations, and names what is wrong.
const CellInfo& define_cell(const CellDefinition& definition, const CellEquations& equations);

/// Defines a cell by its JSON text. Throws Error(bad_input); the message begins with `source`.
const CellInfo& define_cell_json(std::string_view json, std::string_view source = "cell");

/// Returns the JSON text of a cell that was defined. Throws Error(invalid_argument) for any other name.
const std::string& cell_json(std::string_view name);

/// Returns K, the number of learnt vectors of a cell. They stand behind the gates of bias_ih, [(G + K)*H]; 0 for the
/// cells that Penstock brings along.
Index learnt_vectors(std::string_view cell);

}  // namespace penstock
