#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock::io {
namespace {

using test::expect_error;
using test::TemporaryFolder;

/// A file with this header and so many bytes of data.
std::string file_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string content(8, '\0');
  std::memcpy(content.data(), &length, 8);
  return content + header + std::string(data_bytes, '\1');
}

void expect_refused(const std::string& header, std::size_t data_bytes, const std::string& message) {
  expect_error(ErrorCode::bad_input, "m.safetensors: " + message,
               [&] { SafetensorsFile::parse(file_of(header, data_bytes), "m.safetensors"); });
}

TEST(Safetensors, WhatIsWrittenIsRead) {
  const TemporaryFolder folder;
  const std::vector<float> weights = {
      1.5f,          -0.0f, std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::infinity(),
      std::nanf(""), 6.0f};
  const std::vector<double> exact = {1.0 / 3.0};
  const std::vector<std::uint64_t> state = {~std::uint64_t{0}, 0, 7};
  const std::vector<std::int64_t> steps = {-5};
  const std::vector<std::uint8_t> flags = {1, 0, 255};
  const Metadata metadata = {{"spec", R"({"cell": "lstm"})"}, {"näme", "line\nbreak \"quoted\""}, {"empty", ""}};
  const std::vector<TensorData> tensors = {
      tensor_data<std::uint8_t>("flags", {3}, flags),         tensor_data<float>("model/weight", {2, 3}, weights),
      tensor_data<std::int64_t>("scalar", {}, steps),         tensor_data<double>("optimizer/\"ä\"", {1, 1}, exact),
      tensor_data<std::uint64_t>("random state", {3}, state), tensor_data<float>("nothing", {0, 4}, {}),
  };
  write_safetensors(folder.path("m"), tensors, metadata);
  EXPECT_EQ(folder.count(), 1) << "the temporary file is gone";

  const auto file = SafetensorsFile::open(folder.path("m"));
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const auto& tensor : tensors) {
    const TensorInfo* found = file.find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->dtype, tensor.dtype);
    EXPECT_EQ(found->shape, tensor.shape);
    ASSERT_EQ(file.bytes(*found).size(), tensor.values.size());
    EXPECT_TRUE(std::equal(tensor.values.begin(), tensor.values.end(), file.bytes(*found).begin())) << tensor.name;
  }
  EXPECT_EQ(file.find("weight"), nullptr);

  std::vector<float> read(6);
  file.read<float>("model/weight", {2, 3}, read);
  EXPECT_EQ(std::memcmp(read.data(), weights.data(), 24), 0);
}

TEST(Safetensors, DataAreAlignedAndFilesRepeat) {
  const TemporaryFolder folder;
  const std::vector<std::uint8_t> byte = {1};
  const std::vector<float> single = {2.0f};
  const std::vector<double> twice = {3.0};
  const std::vector<TensorData> tensors = {tensor_data<std::uint8_t>("a", {1}, byte),
                                           tensor_data<float>("b", {1}, single), tensor_data<double>("c", {1}, twice),
                                           tensor_data<float>("d", {1}, single)};
  write_safetensors(folder.path("1"), tensors, {{"k", "v"}});
  write_safetensors(folder.path("2"), tensors, {{"k", "v"}});
  const std::string content = folder.read("1");
  EXPECT_EQ(content, folder.read("2"));
  std::uint64_t header = 0;
  std::memcpy(&header, content.data(), 8);
  EXPECT_EQ(header % 8, 0u);
  const auto file = SafetensorsFile::open(folder.path("1"));
  std::vector<std::string> order;
  for (const auto& tensor : file.tensors()) {
    order.push_back(tensor.name);
    EXPECT_EQ(tensor.offset % size_of(tensor.dtype), 0) << tensor.name;
  }
  EXPECT_EQ(order, (std::vector<std::string>{"c", "b", "d", "a"}));
}

TEST(Safetensors, FileWithoutTensorsOrMetadata) {
  const TemporaryFolder folder;
  write_safetensors(folder.path("m"), {}, {});
  const auto file = SafetensorsFile::open(folder.path("m"));
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_TRUE(file.metadata().empty());
}

TEST(Safetensors, ReadsEveryDType) {
  const auto file = SafetensorsFile::parse(file_of(R"({"h":{"dtype":"BF16","shape":[3],"data_offsets":[1,7]},
      "o":{"dtype":"BOOL","shape":[],"data_offsets":[0,1]}})",
                                                   7),
                                           "x");
  EXPECT_EQ(file.find("h")->dtype, DType::bf16);
  EXPECT_EQ(file.find("h")->offset, 1);
  EXPECT_EQ(file.tensors()[0].name, "o");
  for (const DType dtype : {DType::boolean, DType::u8, DType::i8, DType::u16, DType::i16, DType::f16, DType::bf16,
                            DType::u32, DType::i32, DType::f32, DType::u64, DType::i64, DType::f64}) {
    const auto bytes = static_cast<std::size_t>(size_of(dtype));
    const std::string header = R"({"x":{"dtype":")" + std::string(to_string(dtype)) +
                               R"(","shape":[1],"data_offsets":[0,)" + std::to_string(bytes) + "]}}";
    EXPECT_EQ(SafetensorsFile::parse(file_of(header, bytes), "x").find("x")->dtype, dtype);
  }
}

TEST(Safetensors, ReadNamesWhatDiffers) {
  const auto file = SafetensorsFile::parse(file_of(R"({"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})", 16),
                                           "m.safetensors");
  std::vector<float> values(4);
  std::vector<double> wide(4);
  std::vector<float> few(3);
  expect_error(ErrorCode::incompatible, "m.safetensors: no tensor \"v\"", [&] {
    file.read<float>("v", {2, 2}, values);
  });
  expect_error(ErrorCode::incompatible, "m.safetensors: tensor \"w\" is F32 [2, 2], not F32 [4]",
               [&] { file.read<float>("w", {4}, values); });
  expect_error(ErrorCode::incompatible, "tensor \"w\" is F32 [2, 2], not F64 [2, 2]", [&] {
    file.read<double>("w", {2, 2}, wide);
  });
  expect_error(ErrorCode::invalid_argument, "tensor \"w\" has 16 bytes, the room for it 12", [&] {
    file.read<float>("w", {2, 2}, few);
  });
}

TEST(Safetensors, NoSuchFileFolderOrContent) {
  const TemporaryFolder folder;
  const auto open = [&](const std::string& name) {
    return [path = folder.path(name)] { SafetensorsFile::open(path); };
  };
  expect_error(ErrorCode::io_failure, "missing': No such file or directory", open("missing"));
  expect_error(ErrorCode::io_failure, "': Is a directory", open(""));
  folder.write("empty", "");
  expect_error(ErrorCode::bad_input, "empty: no safetensors file: 0 bytes are too few for a header", open("empty"));
  folder.write("short", "1234567");
  expect_error(ErrorCode::bad_input, "short: no safetensors file: 7 bytes", open("short"));
  folder.write("text", "In the beginning God created the heaven and the earth.");
  expect_error(
      ErrorCode::bad_input,
      "text: no safetensors file, which is what a model is kept in: it does not begin with the length of a header",
      open("text"));
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const TemporaryFolder folder;
  const std::vector<float> values = {1, 2, 3};
  const std::vector<TensorData> tensors = {tensor_data<float>("w", {3}, values)};
  write_safetensors(folder.path("m"), tensors, {{"key", "value"}});
  const std::string whole = folder.read("m");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    expect_error(ErrorCode::bad_input, "cut", [&] { SafetensorsFile::parse(whole.substr(0, size), "cut"); });
  }
  expect_error(ErrorCode::bad_input, "cut: tensor \"w\": data_offsets [0, 12] reach beyond the 11 bytes of data",
               [&] { SafetensorsFile::parse(whole.substr(0, whole.size() - 1), "cut"); });
  expect_error(ErrorCode::bad_input, "long: 3 bytes after the last tensor belonging to no tensor",
               [&] { SafetensorsFile::parse(whole + "abc", "long"); });
}

TEST(Safetensors, HeaderLength) {
  std::string content(64, ' ');
  const auto with_length = [&](std::uint64_t length) {
    std::memcpy(content.data(), &length, 8);
    return content;
  };
  for (const std::uint64_t length : {std::uint64_t{57}, std::uint64_t{100'000'000}}) {
    expect_error(ErrorCode::bad_input,
                 "x: no safetensors file, or a truncated one: its header would be " + std::to_string(length) +
                     " bytes long, the file has 64",
                 [&] { SafetensorsFile::parse(with_length(length), "x"); });
  }
  for (const std::uint64_t length :
       {std::uint64_t{100'000'001}, std::uint64_t{1} << 63, ~std::uint64_t{0}, ~std::uint64_t{0} - 7}) {
    expect_error(ErrorCode::bad_input, "x: no safetensors file, which is what a model is kept in: it does not begin",
                 [&] { SafetensorsFile::parse(with_length(length), "x"); });
  }
}

TEST(Safetensors, HeaderThatIsNoObject) {
  for (const char* header : {"", "[]", "1", "null", "\"x\"", " {}", "\xef\xbb\xbf{}"}) {
    expect_refused(header, 0, "the header is not a JSON object");
  }
}

TEST(Safetensors, HeaderThatIsNoJson) {
  for (const char* header : {"{", "{]", "{\"a\"}", "{}x", "{},{}", "{\"a\xff\":1}", "{'a':1}"}) {
    expect_refused(header, 0, "the header is not JSON in UTF-8: ");
  }
  for (const char* header : {"{\"a\":}", "{\"a\": NaN}"}) {
    expect_refused(header, 0, "tensor \"a\": must be an object with dtype, shape and data_offsets");
  }
  expect_refused(std::string("{}\0", 3), 0, "the header is not JSON in UTF-8: the end of the text expected at byte 2");
}

TEST(Safetensors, DeepNestingIsRefusedAtOnce) {
  const std::string deep(1'000'000, '[');
  expect_refused("{\"a\":" + deep, 0, "tensor \"a\": must be an object with dtype, shape and data_offsets");
  expect_refused(R"({"a":{"shape":)" + deep, 0, "tensor \"a\": shape must be a list of at most 64 whole numbers");
  expect_refused(R"({"__metadata__":{"k":)" + deep, 0, "__metadata__: \"k\" must be a string");
  std::string objects = "{";
  for (int i = 0; i < 100'000; ++i) objects += "\"a\":{";
  expect_refused(objects, 0, "tensor \"a\": unknown field \"a\"");
}

TEST(Safetensors, Metadata) {
  expect_refused(R"({"__metadata__":[]})", 0, "__metadata__ must be an object of strings");
  expect_refused(R"({"__metadata__":"x"})", 0, "__metadata__ must be an object of strings");
  expect_refused(R"({"__metadata__":{"a":1}})", 0, "__metadata__: \"a\" must be a string");
  expect_refused(R"({"__metadata__":{"a":{}}})", 0, "__metadata__: \"a\" must be a string");
  expect_refused(R"({"__metadata__":{"a":"1","a":"2"}})", 0, "__metadata__: \"a\" appears twice");
  expect_refused(R"({"__metadata__":{},"__metadata__":{}})", 0, "\"__metadata__\" appears twice in the header");
}

TEST(Safetensors, TensorFields) {
  expect_refused(R"({"w":1})", 0, "tensor \"w\": must be an object with dtype, shape and data_offsets");
  expect_refused(R"({"w":{}})", 0, "tensor \"w\": no dtype");
  expect_refused(R"({"w":{"dtype":"F32"}})", 0, "tensor \"w\": no shape");
  expect_refused(R"({"w":{"dtype":"F32","shape":[]}})", 0, "tensor \"w\": no data_offsets");
  expect_refused(R"({"w":{"dtype":"F32","dtype":"F32"}})", 0, "tensor \"w\": dtype appears twice");
  expect_refused(R"({"w":{"type":"F32"}})", 0, "tensor \"w\": unknown field \"type\"");
  expect_refused(R"({"w":{"dtype":32}})", 0, "tensor \"w\": dtype must be a string");
  expect_refused(R"({"w":{"dtype":["F32"]}})", 0, "tensor \"w\": dtype must be a string");
  expect_refused(R"({"w":{"dtype":"f32"}})", 0, "tensor \"w\": dtype \"f32\" is none of BOOL, U8, I8, U16");
  expect_refused(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                     "w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                 8, "\"w\" appears twice in the header");
}

TEST(Safetensors, Shape) {
  const auto with_shape = [](const std::string& shape) {
    return R"({"w":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,4]}})";
  };
  std::string long_shape = "[1";
  for (int i = 0; i < 64; ++i) long_shape += ",1";
  for (const std::string& shape :
       {std::string("1"), std::string("[-1]"), std::string("[1.0]"), std::string("[1e3]"), std::string("[true]"),
        std::string("[null]"), std::string("[[1]]"), std::string("{}"), std::string("\"1\""),
        std::string("[4611686018427387913]"), std::string("[99999999999999999999999]"), long_shape + "]"}) {
    expect_refused(with_shape(shape), 4, "tensor \"w\": shape must be a list of at most 64 whole numbers");
  }
  for (const char* shape : {"[4294967296, 4294967296]", "[4611686018427387903]", "[4611686018427387903, 3]",
                            "[4294967296, 4294967296, 0]"}) {
    expect_refused(with_shape(shape), 4, "tensor \"w\": shape [");
  }
  expect_refused(with_shape("[2, 3]"), 4, "tensor \"w\": F32 [2, 3] takes 24 bytes, but its data_offsets span 4");
  expect_refused(with_shape("[0]"), 4, "tensor \"w\": F32 [0] takes 0 bytes, but its data_offsets span 4");
}

TEST(Safetensors, Offsets) {
  const auto with_offsets = [](const std::string& offsets) {
    return R"({"w":{"dtype":"U8","shape":[4],"data_offsets":)" + offsets + "}}";
  };
  for (const char* offsets :
       {"[]", "[0]", "[0,4,8]", "[-4,0]", "[0,\"4\"]", "4", "{}", "[0,4.0]",
        "[18446744073709551612,18446744073709551616]", "[9223372036854775803,9223372036854775807]"}) {
    expect_refused(with_offsets(offsets), 4, "tensor \"w\": data_offsets must be two whole numbers");
  }
  expect_refused(with_offsets("[4,0]"), 4, "tensor \"w\": data_offsets [4, 0] end before they begin");
  expect_refused(with_offsets("[4,8]"), 4, "tensor \"w\": data_offsets [4, 8] reach beyond the 4 bytes of data");
  expect_refused(with_offsets("[4611686018427387900,4611686018427387904]"), 4,
                 "tensor \"w\": data_offsets [4611686018427387900, 4611686018427387904] reach beyond");
  expect_refused(with_offsets("[1,5]"), 5, "1 byte before tensor \"w\" belonging to no tensor");
  expect_refused(with_offsets("[0,4]"), 5, "1 byte after the last tensor belonging to no tensor");
  expect_refused("{}", 1, "1 byte after the last tensor belonging to no tensor");
}

TEST(Safetensors, OverlapAndGap) {
  const auto two = [](const std::string& first, const std::string& second) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
  };
  EXPECT_EQ(SafetensorsFile::parse(file_of(two("[4,8]", "[0,4]"), 8), "x").tensors()[0].name, "b");
  expect_refused(two("[0,4]", "[0,4]"), 4, "tensor \"b\" overlaps tensor \"a\"");
  expect_refused(two("[0,4]", "[3,7]"), 7, "tensor \"b\" overlaps tensor \"a\"");
  expect_refused(two("[3,7]", "[0,4]"), 7, "tensor \"a\" overlaps tensor \"b\"");
  expect_refused(two("[0,4]", "[6,10]"), 10, "2 bytes before tensor \"b\" belonging to no tensor");
}

TEST(Safetensors, HostileNamesStayOnOneLine) {
  expect_refused(R"({"a\n\u0000\u001b[31m":1})", 0, "tensor \"a???[31m\": must be an object");
  expect_refused("{\"" + std::string(100'000, 'n') + "\":1}", 0, "tensor \"" + std::string(40, 'n') + "\"...: must");
}

TEST(Safetensors, WriterRefusesWhatItsReaderWould) {
  const TemporaryFolder folder;
  const std::vector<float> values = {1, 2};
  const auto write = [&](std::vector<TensorData> tensors, const Metadata& metadata = {}) {
    return [&folder, tensors, metadata] { write_safetensors(folder.path("m"), tensors, metadata); };
  };
  const auto tensor = [&](const std::string& name, std::vector<Index> shape) {
    return tensor_data<float>(name, std::move(shape), values);
  };
  expect_error(ErrorCode::invalid_argument, "a tensor cannot be named \"\"", write({tensor("", {2})}));
  expect_error(ErrorCode::invalid_argument, "a tensor cannot be named \"__metadata__\"",
               write({tensor("__metadata__", {2})}));
  expect_error(ErrorCode::invalid_argument, "two tensors are named \"w\"", write({tensor("w", {2}), tensor("w", {2})}));
  expect_error(ErrorCode::invalid_argument, "tensor \"w\": F32 [3] does not describe its 8 bytes",
               write({tensor("w", {3})}));
  expect_error(ErrorCode::invalid_argument, "tensor \"w\": F32 [-1, -2] does not describe",
               write({tensor("w", {-1, -2})}));
  expect_error(ErrorCode::invalid_argument, "tensor names and metadata must be valid UTF-8",
               write({tensor("w\xff", {2})}));
  expect_error(ErrorCode::invalid_argument, "tensor names and metadata must be valid UTF-8",
               write({}, {{"key", "\xc3"}}));
  EXPECT_EQ(folder.count(), 0);
}

}  // namespace
}  // namespace penstock::io
