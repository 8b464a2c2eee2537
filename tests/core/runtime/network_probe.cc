// A network through the C runtime, for tests/python:
//
//     network_probe FILE [INPUT=EXTENT,...] ...
//
// opens a file of a network with the shapes of inputs, takes the rows of standard input, floats, as steps, and writes
// the answers to standard output. Fails if a step allocates, locks or calls the system.

#include <penstock.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "support/counted_calls.h"

namespace {

[[noreturn]] void fail(const char* what, const penstock_error& error) {
  std::fprintf(stderr, "network_probe: %s%s%s\n", what, error.text[0] == '\0' ? "" : ": ", error.text);
  std::exit(1);
}

std::vector<float> read_rows() {
  std::vector<float> rows, part(1 << 16);
  while (const std::size_t count = std::fread(part.data(), sizeof(float), part.size(), stdin)) {
    rows.insert(rows.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(count));
  }
  return rows;
}

penstock_model* open(int count, char** arguments, penstock_error& error) {
  std::vector<std::string> names;
  std::vector<std::vector<std::int64_t>> extents;
  for (int i = 2; i < count; ++i) {
    std::istringstream words(arguments[i]);
    std::getline(words, names.emplace_back(), '=');
    extents.emplace_back();
    for (std::string extent; std::getline(words, extent, ',');) extents.back().push_back(std::stoll(extent));
  }
  std::vector<penstock_shape> shapes;
  for (std::size_t i = 0; i < names.size(); ++i) {
    shapes.push_back({names[i].c_str(), extents[i].data(), extents[i].size()});
  }
  penstock_model* model = nullptr;
  if (penstock_network_open(arguments[1], shapes.data(), shapes.size(), &model, &error) != PENSTOCK_OK) {
    fail("cannot open the network", error);
  }
  return model;
}

}  // namespace

int main(int count, char** arguments) {
  penstock_error error = {};
  if (count < 2) fail("usage: network_probe FILE [INPUT=EXTENT,...] ...", error);
  penstock_model* const model = open(count, arguments, error);
  penstock_model_info info = {};
  info.struct_size = sizeof(info);
  penstock_session* session = nullptr;
  if (penstock_model_get_info(model, &info, &error) != PENSTOCK_OK ||
      penstock_session_open(model, nullptr, 0, &session, &error) != PENSTOCK_OK) {
    fail("no session", error);
  }
  const std::vector<float> rows = read_rows();
  std::vector<float> answers(rows.size() / info.inputs * info.outputs);
  const auto play = [&] {
    return penstock_session_chunk(session, rows.data(), rows.size(), answers.data(), answers.size(), &error) ==
           PENSTOCK_OK;
  };
#ifdef PENSTOCK_COUNTS_CALLS
  if (penstock::test::status_without_calls(play) != 0) fail("a step calls the system, or is refused", error);
  const long before = penstock::test::counted_calls;
  const bool fine = play();
  if (penstock::test::counted_calls != before) fail("a step allocates, releases or locks", error);
#else
  const bool fine = play();
#endif
  if (!fine) fail("a step is refused", error);
  std::fwrite(answers.data(), sizeof(float), answers.size(), stdout);
  return 0;
}
