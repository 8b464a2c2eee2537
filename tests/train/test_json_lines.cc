// JSON lines as tables: which columns there are, what becomes of values, what is refused and where.

#include <gtest/gtest.h>

#include <string>

#include "penstock/data.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "train/json_lines.h"

namespace penstock {
namespace {

using data::table_of_json_lines;
using test::expect_error;
using test::TemporaryFolder;

TEST(JsonLines, AreNamedSo) {
  for (const char* name : {"a.jsonl", "A.JSONL", "a.ndjson", "a.jsonl.gz"})
    EXPECT_TRUE(data::is_json_lines(name)) << name;
  for (const char* name : {"a.json", "jsonl", "a.jsonl.txt", "-"}) EXPECT_FALSE(data::is_json_lines(name)) << name;
}

TEST(JsonLines, BecomeATableOfAllKeys) {
  EXPECT_EQ(table_of_json_lines("{\"a\": 1, \"b\": \"x\"}\n"
                                "\r\n"
                                "{\"b\": \"say \\\"no\\\", twice\", \"c\": true, \"a\": null}\r\n"
                                "{}",
                                "f"),
            "sep=,\na,b,c\n1,x,\"\"\n\"\",\"say \"\"no\"\", twice\",true\n\"\",\"\",\"\"\n");
  EXPECT_EQ(table_of_json_lines("", "f"), "");
  EXPECT_EQ(table_of_json_lines("\n \n", "f"), "");
}

TEST(JsonLines, KeepNumbersAsTheyAreWritten) {
  EXPECT_EQ(table_of_json_lines("{\"a\": 0.1000, \"b\": -1.5e-7, \"c\": 12345678901234567890, \"d\": -3}\n", "f"),
            "sep=,\na,b,c,d\n0.1000,-1.5e-7,12345678901234567890,-3\n");
}

TEST(JsonLines, KeepTextsOnALine) {
  EXPECT_EQ(table_of_json_lines("\xef\xbb\xbf{\"a b\": \"one\\ntwo\\r\\nthree \\u00e9\", \"c\": \" x\"}", "f"),
            "sep=,\na b,c\n\"one two  three \xc3\xa9\",\" x\"\n");
}

TEST(JsonLines, OfWhichALineIsNoObjectAreRefused) {
  const auto refused = [](const std::string& line, const std::string& message) {
    expect_error(ErrorCode::bad_input, "f:2: " + message, [&] { table_of_json_lines("{\"a\": 1}\n" + line, "f"); });
  };
  expect_error(ErrorCode::bad_input, "f: no line has a field", [] { table_of_json_lines("{}\n{}\n", "f"); });
  refused("{\"a\": ", "no JSON from its byte 7 on");
  refused("{\"a\": NaN}", "no JSON from its byte 7 on");
  refused("{\"a\": 1} {\"a\": 2}", "no JSON from its byte 10 on");
  refused("a,b", "no JSON from its byte 1 on");
  refused("[1, 2]", "an array, not an object");
  refused("3", "a value, not an object");
  refused("{\"a\": [1]}", "an array under \"a\", not a value");
  refused("{\"a\": {\"b\": 1}}", "an object under \"a\", not a value");
  refused("{\"a\": " + std::string(100000, '['), "an array under \"a\", not a value");
  refused("{\"a\": 1e999}", "no JSON from its byte");
}

TEST(JsonLines, AreWhatTheirFieldsAre) {
  const TemporaryFolder folder;
  std::string series, labelled, texts, corpus;
  for (int i = 0; i < 60; ++i) {
    const std::string number = std::to_string(i % 7);
    series += "{\"day\": \"2024-01-" + std::to_string(i % 28 + 1) + "\", \"level\": " + number + "}\n";
    labelled += "{\"sequence\": " + std::to_string(i / 6) + ", \"label\": \"" + (i / 6 % 2 == 0 ? "up" : "down") +
                "\", \"x\": " + number + "}\n";
    const std::string text = "what somebody wrote about film number " + std::to_string(i);
    texts += "{\"text\": \"" + text + "\", \"label\": \"" + (i % 2 == 0 ? "good" : "bad") + "\"}\n";
    corpus += "{\"text\": \"" + text + "\"}\n";
  }
  EXPECT_EQ(guess_kind({folder.write("s.jsonl", series)}), SourceKind::series);
  EXPECT_EQ(guess_kind({folder.write("l.ndjson", labelled)}), SourceKind::labelled);
  EXPECT_EQ(guess_kind({folder.write("t.jsonl", texts)}), SourceKind::labelled_texts);
  EXPECT_EQ(guess_kind({folder.write("c.jsonl", corpus)}), SourceKind::text);
  EXPECT_EQ(guess_kind({folder.write("b.jsonl", "no JSON\n")}), SourceKind::text);
  // A text is its bytes, and a table its rows.
  EXPECT_EQ(read_source(folder.path("c.jsonl")), corpus);
  EXPECT_TRUE(read_table(folder.path("s.jsonl")).starts_with("sep=,\nday,level\n2024-01-1,0\n"));
  expect_error(ErrorCode::bad_input, "m.jsonl:2:", [&] {  // the line of the file
    open_series(folder.write("m.jsonl", "{\"x\": 1}\n{\"x\": null}\n{\"x\": 3}\n"), {.inputs = {"x"}});
  });
  // A row that holds nothing else is a row all the same.
  const std::string gaps = "{\"x\": 1}\n{\"x\": null}\n{\"x\": 3}\n{}\n{\"x\": 2}\n{\"x\": 4}\n";
  const auto carried = open_series(folder.write("g.jsonl", gaps), {.missing = Missing::carry});
  EXPECT_EQ(carried->training_steps() + carried->held_out_steps(), 5);  // of six rows, the last one is only forecast
  const auto data = open_series(folder.path("s.jsonl"), {.inputs = {"level"}});
  EXPECT_EQ(data->description().inputs.front().name, "level");
}

}  // namespace
}  // namespace penstock
