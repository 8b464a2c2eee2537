#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "penstock/data.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

using test::expect_error;
using test::TemporaryFolder;

std::string letters(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += static_cast<char>(i * 7 % 251);
  return text;
}

std::unique_ptr<Dataset> open(const TemporaryFolder& folder, const std::string& text, double validation_fraction) {
  return open_text(folder.write("text", text), {validation_fraction, true});
}

TEST(TextData, StreamsWalkThroughTheTextAndWrap) {
  const TemporaryFolder folder;
  const auto data = open(folder, "abcdefghijk", 0.0);  // 10 steps: a->b ... j->k
  EXPECT_EQ(data->training_steps(), 10);
  EXPECT_EQ(data->description().task, Task::language);
  EXPECT_EQ(data->description().vocabulary, 256);
  EXPECT_EQ(data->description().output_size(), 256);
  Example example;
  const auto text_of = [&](const std::vector<std::int32_t>& bytes) { return std::string(bytes.begin(), bytes.end()); };
  data->next(2, 4, example);
  EXPECT_EQ(example.rows, 2);
  EXPECT_EQ(example.steps, 4);
  EXPECT_EQ(text_of(example.tokens), "abcdfghi");
  EXPECT_EQ(text_of(example.labels), "bcdeghij");
  EXPECT_FALSE(example.continues);
  EXPECT_TRUE(example.reset.empty());
  EXPECT_TRUE(example.lengths.empty());
  data->next(2, 4, example);
  EXPECT_EQ(text_of(example.tokens), "efghjabc");
  EXPECT_EQ(text_of(example.labels), "fghikbcd") << "no step predicts across the wrap";
  EXPECT_TRUE(example.continues);
  EXPECT_EQ(example.reset, (std::vector<std::uint8_t>{0, 0, 0, 0, 0, 1, 0, 0}));
  data->next(2, 2, example);  // row 0 ends exactly at the end of the text
  EXPECT_EQ(text_of(example.tokens), "ijde");
  EXPECT_TRUE(example.reset.empty());
  data->next(2, 2, example);
  EXPECT_EQ(text_of(example.tokens), "abfg");
  EXPECT_EQ(example.reset, (std::vector<std::uint8_t>{1, 0, 0, 0}));
}

TEST(TextData, WindowsLongerThanTheText) {
  const TemporaryFolder folder;
  const auto data = open(folder, "abc", 0.0);
  Example example;
  data->next(1, 5, example);
  EXPECT_EQ(std::string(example.tokens.begin(), example.tokens.end()), "ababa");
  EXPECT_EQ(example.reset, (std::vector<std::uint8_t>{0, 0, 1, 0, 1}));
}

TEST(TextData, ShapeMayChange) {
  const TemporaryFolder folder;
  const auto data = open(folder, letters(1001), 0.0);
  Example example;
  data->next(4, 10, example);
  const std::int32_t next_of_row_1 = example.labels[1 * 10 + 9];
  data->next(4, 25, example);
  EXPECT_TRUE(example.continues) << "another T";
  EXPECT_EQ(example.tokens[25], next_of_row_1);
  const std::int32_t next_of_row_0 = example.labels[24];
  data->next(2, 10, example);
  EXPECT_FALSE(example.continues) << "another B";
  EXPECT_EQ(example.tokens[0], next_of_row_0) << "rows that remain continue";
  data->next(3, 10, example);
  EXPECT_FALSE(example.continues);
  EXPECT_EQ(example.tokens[20], static_cast<unsigned char>(letters(1001)[666])) << "a new row starts at its b/B";
}

TEST(TextData, EveryHeldOutByteIsScoredOnce) {
  const TemporaryFolder folder;
  std::string text(3000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>((i * i + i / 7) % 256);
  const auto data = open(folder, text, 0.1);
  EXPECT_EQ(data->training_steps(), 2699);
  for (const auto& [rows, steps] : {std::pair<Index, Index>{1, 1}, {3, 7}, {4, 64}, {8, 37}, {64, 1}, {5, 500}}) {
    std::string scored;
    std::map<Index, std::string> by_row;
    Example example;
    for (Index i = 0; data->validation(i, rows, steps, example); ++i) {
      EXPECT_EQ(example.continues, i > 0);
      EXPECT_LE(example.rows, rows);
      EXPECT_LE(example.steps, steps);
      ASSERT_EQ(static_cast<Index>(example.labels.size()), example.rows * example.steps);
      for (Index b = 0; b < example.rows; ++b) {
        for (Index t = 0; t < example.steps; ++t) {
          const std::int32_t label = example.labels[b * example.steps + t];
          const bool valid = example.lengths.empty() || t < example.lengths[b];
          EXPECT_EQ(label >= 0, valid);
          if (!valid) continue;
          if (!by_row[b].empty()) {
            EXPECT_EQ(static_cast<char>(example.tokens[b * example.steps + t]), by_row[b].back());
          }
          by_row[b] += static_cast<char>(label);
        }
      }
    }
    for (const auto& [row, part] : by_row) scored += part;
    EXPECT_EQ(scored, text.substr(2700)) << rows << " rows, " << steps << " steps";
  }
}

TEST(TextData, ValidationStartsFromTheLastTrainingByteAndRepeats) {
  const TemporaryFolder folder;
  const auto data = open(folder, "abcdefghij", 0.3);
  Example first, again;
  ASSERT_TRUE(data->validation(0, 1, 8, first));
  EXPECT_EQ(std::string(first.tokens.begin(), first.tokens.end()), "ghi") << "fewer steps than a window";
  EXPECT_EQ(std::string(first.labels.begin(), first.labels.end()), "hij");
  data->next(2, 3, again);
  ASSERT_TRUE(data->validation(0, 1, 8, again));
  EXPECT_EQ(first.tokens, again.tokens);
  const Example untouched = again;
  EXPECT_FALSE(data->validation(1, 1, 8, again));
  EXPECT_FALSE(data->validation(-1, 1, 8, again));
  EXPECT_EQ(again.tokens, untouched.tokens);
  EXPECT_EQ(again.rows, untouched.rows);
}

TEST(TextData, NoValidation) {
  const TemporaryFolder folder;
  Example example;
  EXPECT_FALSE(open(folder, "abc", 0.0)->validation(0, 1, 1, example));
}

TEST(TextData, AnyBytesWillDo) {
  const TemporaryFolder folder;
  const auto data = open(folder, std::string("\xff\xfe\0\x80\n", 5), 0.0);
  Example example;
  data->next(1, 4, example);
  EXPECT_EQ(example.tokens, (std::vector<std::int32_t>{255, 254, 0, 128}));
  EXPECT_EQ(example.labels, (std::vector<std::int32_t>{254, 0, 128, 10}));
}

TEST(TextData, PositionAndRestore) {
  const TemporaryFolder folder;
  const auto data = open(folder, letters(500), 0.1);
  Example expected, example;
  data->next(3, 17, expected);
  data->next(3, 100, expected);
  const std::string position = data->position();
  EXPECT_EQ(position.find('\n'), position.npos);
  data->next(3, 400, expected);

  const auto other = open(folder, letters(500), 0.1);
  other->restore(position);
  other->next(3, 400, example);
  EXPECT_EQ(example.tokens, expected.tokens);
  EXPECT_EQ(example.reset, expected.reset);
  EXPECT_TRUE(example.continues) << "the caller has kept the state";
  EXPECT_EQ(other->position(), data->position());

  const auto fresh = open(folder, letters(500), 0.1);
  const std::string start = fresh->position();
  fresh->next(2, 2, example);
  fresh->restore(start);
  fresh->next(2, 2, example);
  EXPECT_FALSE(example.continues) << "back at the very start";
}

TEST(TextData, RestoreChecksEverything) {
  const TemporaryFolder folder;
  const auto data = open(folder, letters(500), 0.1);
  Example example;
  data->next(2, 5, example);
  const std::string position = data->position();
  const auto restore = [&](const std::string& text) { return [&data, text] { data->restore(text); }; };
  const auto replaced = [&](const std::string& what, const std::string& with) {
    std::string text = position;
    const auto found = text.find(what);
    if (found == text.npos) throw std::logic_error("no " + what + " in " + text);
    return text.replace(found, what.size(), with);
  };
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("{}"), replaced("\"kind\"", "\"sort\""),
        replaced("[5,", "[\"5\","), replaced("[5,", "[5.5,"), replaced("[5,", "[1e300,"), position.substr(0, 30)}) {
    expect_error(ErrorCode::bad_input, "the position in the data cannot be read: ", restore(text));
  }
  for (const char* number : {"[-1,", "[449,", "[9223372036854775807,"}) {
    expect_error(ErrorCode::bad_input, "the position in the text data lies outside of them",
                 restore(replaced("[5,", number)));
  }
  expect_error(ErrorCode::incompatible, "this position belongs to \"series\" data, not to text",
               restore(replaced("\"text\"", "\"series\"")));
  std::string other_text = letters(500);
  other_text[400] ^= 1;
  expect_error(ErrorCode::incompatible, "this position belongs to other text data: the file or the options",
               [&] { open(folder, other_text, 0.1)->restore(position); });
  expect_error(ErrorCode::incompatible, "this position belongs to other text data",
               [&] { open(folder, letters(500), 0.2)->restore(position); });
  EXPECT_EQ(data->position(), position) << "refusals leave the position alone";
}

TEST(TextData, Refusals) {
  const TemporaryFolder folder;
  const auto refuse = [&](const std::string& text, double fraction, ErrorCode code, const std::string& message) {
    expect_error(code, message, [&] { open(folder, text, fraction); });
  };
  refuse("", 0.1, ErrorCode::bad_input, "text: the file is empty");
  refuse("a", 0.0, ErrorCode::bad_input, "text: a text of 1 byte is too short: training needs two and validation one");
  refuse("ab", 0.1, ErrorCode::bad_input, "text: a text of 2 bytes is too short");
  EXPECT_NO_THROW(open(folder, "ab", 0.0));
  EXPECT_NO_THROW(open(folder, "abc", 0.1));
  for (const double fraction : {-0.1, 0.6, std::nan("")}) {
    refuse("abc", fraction, ErrorCode::invalid_argument, "validation_fraction must be in [0, 0.5], not ");
  }
  expect_error(ErrorCode::io_failure, "No such file or directory", [&] { open_text(folder.path("none")); });
  const TemporaryFolder nothing;
  expect_error(ErrorCode::bad_input, "there are no files in this folder", [&] { open_text(nothing.folder()); });
  expect_error(ErrorCode::bad_input,
               "binary: this is binary data (byte 3 is 0), not a text; the option 'bytes' reads it anyway; the option "
               "'tokens=uint16' reads token ids of two bytes",
               [&] { open_text(folder.write("binary", std::string("ab\0c", 4))); });

  const auto data = open(folder, "abc", 0.1);
  Example example;
  for (const auto& [rows, steps] : {std::pair<Index, Index>{0, 1},
                                    {1, 0},
                                    {-1, 1},
                                    {Index{1} << 40, 1},
                                    {Index{1} << 20, Index{1} << 20},
                                    {Index{1} << 62, 4}}) {
    expect_error(ErrorCode::invalid_argument, "a batch must have at least one row and one step",
                 [&, r = rows, s = steps] { data->next(r, s, example); });
    expect_error(ErrorCode::invalid_argument, "a batch must have at least one row and one step",
                 [&, r = rows, s = steps] { data->validation(0, r, s, example); });
  }
}

TEST(TextData, HugeTextsInUtf16AreRefusedWithoutReadingThem) {
  const TemporaryFolder folder;
  folder.write("huge", "\xff\xfe");
  std::filesystem::resize_file(folder.path("huge"), (std::uintmax_t{2} << 30) + 1);  // sparse
  expect_error(ErrorCode::bad_input, "huge: more than 2147483648 bytes of UTF-16",
               [&] { open_text(folder.path("huge")); });
}

}  // namespace
}  // namespace penstock
