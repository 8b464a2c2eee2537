#include <penstock.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "fuzz/damage.h"
#include "penstock/checksum.h"

namespace penstock::test {
namespace {

constexpr std::string_view kZeros = "0000000000000000";

/// A file of a header and its data, mostly with the checksum that it has now: damaged headers get past it.
std::string with_checksum(std::string header, Index floats, Random& random) {
  const std::uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  file += header;
  for (Index i = 0; i < floats; ++i) {
    const auto value = static_cast<float>(random.uniform(-1.0, 1.0));
    file.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  const std::size_t place = checksum_place(file, "penstock.checksum");
  if (place != file.npos && random.below(16) != 0) file.replace(place, kZeros.size(), checksum_of(file, place));
  return file;
}

std::string tensor(const std::string& name, const std::string& shape, Index begin, Index count) {
  return ",\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[" + shape + "],\"data_offsets\":[" +
         std::to_string(4 * begin) + "," + std::to_string(4 * (begin + count)) + "]}";
}

std::string header(const std::string& model, const std::string& tensors, const std::string& key = "penstock") {
  std::string escaped;
  for (const char c : model) escaped += c == '"' ? "\\\"" : std::string(1, c);
  return "{\"__metadata__\":{\"penstock.checksum\":\"" + std::string(kZeros) + "\",\"" + key + "\":\"" + escaped +
         "\"}" + tensors + "}";
}

TEST(Fuzz, DamagedModelsInTheRuntime) {
  const std::string cell =
      R"("cell":"own","cell_equations":{"format":"penstock-cell","version":1,"name":"own","description":"","kind":"dense",)"
      R"("gates":1,"states":["h"],"learnt":[{"name":"p","initial":0.5}],"keep_gate":-1,"overwrite_gate":-1,)"
      R"("spread_memory":false,"nodes":[{"op":"input","index":0},{"op":"recurrent","index":0},{"op":"add","of":[0,1]},)"
      R"({"op":"learnt","index":0},{"op":"multiply","of":[2,3]},{"op":"tanh","of":[4]},{"op":"constant","value":0.5},)"
      R"({"op":"multiply","of":[5,6]}],"outputs":[7]})";
  const std::string rest =
      R"(,"width":2,"blocks":1,"hidden_size":0,"heads":1,"convolution":0,"feed_forward":0.0,"dropout":0.0,)"
      R"("end_norms":true,"from_last":false,"lags":0,"known_effects":false,"filters":0,"dilations":0,"members":1})";
  const std::string data =
      R"("data":{"task":"classify","vocabulary":0,"inputs":[{"name":"x","mean":0.0,"scale":1.0}],"targets":[],)"
      R"("horizon":1,"classes":["a","b"],"delimiter":","})";
  const std::string tensors =
      tensor("input.weight", "2,1", 0, 2) + tensor("input.bias", "2", 2, 2) +
      tensor("blocks.0.recurrent_norm.gain", "2", 4, 2) + tensor("blocks.0.recurrent.weight_ih", "2,2", 6, 4) +
      tensor("blocks.0.recurrent.weight_hh", "2,2", 10, 4) + tensor("blocks.0.recurrent.bias_ih", "4", 14, 4) +
      tensor("norm.gain", "2", 18, 2) + tensor("head.weight", "2,2", 20, 4) + tensor("head.bias", "2", 24, 2);
  const std::string own = header("{\"format_version\":2,\"model\":{" + cell + rest + "," + data + "}", tensors);
  const std::string plain = header(
      R"({"format_version":2,"model":{"cell":"elman")" + rest + "," + data + "}",
      tensor("input.weight", "2,1", 0, 2) + tensor("input.bias", "2", 2, 2) +
          tensor("blocks.0.recurrent_norm.gain", "2", 4, 2) + tensor("blocks.0.recurrent.weight_ih", "2,2", 6, 4) +
          tensor("blocks.0.recurrent.weight_hh", "2,2", 10, 4) + tensor("blocks.0.recurrent.bias_ih", "2", 14, 2) +
          tensor("norm.gain", "2", 16, 2) + tensor("head.weight", "2,2", 18, 4) + tensor("head.bias", "2", 22, 2));
  const std::vector<std::string_view> words = {"0",
                                               "-1",
                                               "1e3",
                                               "0.5",
                                               "18446744073709551615",
                                               "9223372036854775807",
                                               "65536",
                                               "1024",
                                               "[",
                                               "]",
                                               "{",
                                               "}",
                                               "[[",
                                               "\\\"",
                                               "\"",
                                               ",",
                                               ":",
                                               "null",
                                               "true",
                                               "\"F32\"",
                                               "\"U8\"",
                                               "\"shape\"",
                                               "\\u0000",
                                               "\\ud800",
                                               "\xff",
                                               "\\\\",
                                               "lstm",
                                               "elman",
                                               "mean",
                                               "where",
                                               "state",
                                               "members",
                                               "filters",
                                               "dilations",
                                               "lags",
                                               "from_last",
                                               "blocks"};
  for (const auto& [seed, floats] : {std::pair{own, 26}, std::pair{plain, 24}}) {
    Random random(2);
    const std::string file = with_checksum(seed, floats, random);
    penstock_model* model = nullptr;
    penstock_error error = {PENSTOCK_OK, {}};
    EXPECT_EQ(penstock_model_open_memory(file.data(), file.size(), &model, &error), PENSTOCK_OK) << error.text;
    EXPECT_EQ(penstock_model_close(model, nullptr), PENSTOCK_OK);
  }
  feed_damaged({own, plain}, words, [&](const std::string& damaged, Random& random) {
    return with_checksum(damaged, damaged.find("elman") != damaged.npos ? 24 : 26, random);
  });
}

TEST(Fuzz, DamagedNetworksInTheRuntime) {
  const std::string network = header(
      R"({"format":1,"network":{"constants":[[1,0],[2,1],[3,2]],"inputs":[{"axes":[],"shape":[1,1,2],"type":"f32",)"
      R"("value":0},{"axes":["n","",""],"shape":[-1,1,2],"type":"f32","value":4}],"nodes":[{"attributes":[{"name":"cell",)"
      R"("text":"elman"}],"name":"layer","op":"Recurrent","reads":[0,1,2,-1,-1,4],"writes":[5,6]},{"bodies":[],)"
      R"("name":"sum","op":"Add","reads":[5,3],"writes":[7]}],"outputs":[7,6],"states":[[1,1]],)"
      R"("values":["x","w","r","b","h","y","next","sum"]}})",
      tensor("constant.0", "1,2,2", 0, 4) + tensor("constant.1", "1,2,2", 4, 4) + tensor("constant.2", "2", 8, 2),
      "penstock.network");
  Random random(3);
  const std::string file = with_checksum(network, 10, random);
  penstock_model* model = nullptr;
  penstock_error error = {PENSTOCK_OK, {}};
  EXPECT_EQ(penstock_network_open_memory(file.data(), file.size(), nullptr, 0, &model, &error), PENSTOCK_OK)
      << error.text;
  EXPECT_EQ(penstock_model_close(model, nullptr), PENSTOCK_OK);
  const std::vector<std::string_view> words = {"0",         "-1",   "4294967295", "9223372036854775807",
                                               "[",         "]",    "{",          "}",
                                               "\\\"",      ",",    "\"F32\"",    "\"I64\"",
                                               "f64",       "bool", "Reshape",    "Gather",
                                               "Conv",      "Loop", "If",         "lstm",
                                               "gru-before"};
  feed_damaged({network}, words,
               [&](const std::string& damaged, Random& source) { return with_checksum(damaged, 10, source); });
}

}  // namespace
}  // namespace penstock::test
