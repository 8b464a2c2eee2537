#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/suite/case.h"

namespace penstock::bench {

/// Cells that are run at the same shapes.
struct Group {
  std::vector<std::string> cells;
  std::vector<Shape> shapes;
};

/// Subject of a table, the same on every device.
struct Subject {
  std::string name;
  std::string title;
  std::string about;  ///< Meaning of the numbers, in a sentence or two.
  std::vector<Pass> passes;
  bool per_sequence = false;  ///< Say how much faster a sequence is than alone, and how many are done in a second.
  bool percentiles = false;   ///< Time every call by itself and say how long the slow ones take.
};

/// Cases and contenders of a subject on one device.
struct Lists {
  std::vector<Group> groups;
  std::vector<std::string> ours;   ///< Our ways through a case; ratios refer to the first.
  std::vector<std::string> peers;  ///< Who else takes part, if here.
  std::string who = {};            ///< Contenders whose names do not say what they do, in a sentence.
  std::vector<std::string> dtypes = {"f32"};
};

/// Default of `penstock bench NAME`.
struct Table : Subject, Lists {
  std::string device = "cpu";
};

/// Returns the tables of a device, "cpu" or "cuda"; throws Error(invalid_argument) for another.
const std::vector<Table>& tables(const std::string& device = "cpu");

/// Throws Error(invalid_argument) that lists the names there are.
const Table& find_table(const std::string& name, const std::string& device = "cpu");

/// The peers that any table of the device knows, in the order of the tables.
std::vector<std::string> peer_names(const std::string& device = "cpu");

/// Lists of a device, by the name of the subject.
using ListsBySubject = std::vector<std::pair<std::string, Lists>>;
ListsBySubject cpu_lists();
ListsBySubject cuda_lists();

/// The lengths of the CS179 study: of eight sequences only those whose slowest peers take seconds and not minutes.
std::vector<Shape> cs179_shapes();

/// Choice of a caller instead of a table's own lists; empty: the table's.
struct Choice {
  std::vector<std::string> cells;
  std::vector<Shape> shapes;
  std::vector<Pass> passes;
  std::vector<std::string> dtypes;
  std::vector<int> threads;  ///< 0: as many as the machine has.
  bool quick = false;        ///< Only the first two shapes of each group.
};

/// All cases of a table, the number of threads changing fastest; none if no wanted cell is of the table's kind (a scan
/// by itself is no layer). Throws Error(invalid_argument).
std::vector<Case> cases(const Table& table, const Choice& choice);

}  // namespace penstock::bench
