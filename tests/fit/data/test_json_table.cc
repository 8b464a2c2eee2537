// Objects in JSON as tables: which columns there are, what becomes of values, what is refused and where.

#include <gtest/gtest.h>

#include <string>

#include "data/table/json_table.h"
#include "penstock/data.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

using data::table_of_json;
using test::expect_error;
using test::TemporaryFolder;

TEST(JsonTable, AreNamedSo) {
  for (const char* name : {"a.jsonl", "A.JSONL", "a.ndjson", "a.jsonl.gz", "a.json"})
    EXPECT_TRUE(data::is_json_table(name)) << name;
  for (const char* name : {"json", "jsonl", "a.jsonl.txt", "-"}) EXPECT_FALSE(data::is_json_table(name)) << name;
}

TEST(JsonTable, BecomeATableOfAllKeys) {
  EXPECT_EQ(table_of_json("{\"a\": 1, \"b\": \"x\"}\n"
                          "\r\n"
                          "{\"b\": \"say \\\"no\\\", twice\", \"c\": true, \"a\": null}\r\n"
                          "{}",
                          "f"),
            "sep=,\na,b,c\n1,x,\"\"\n\"\",\"say \"\"no\"\", twice\",true\n\"\",\"\",\"\"\n");
  EXPECT_EQ(table_of_json("", "f"), "");
  EXPECT_EQ(table_of_json("\n \n", "f"), "");
}

TEST(JsonTable, KeepNumbersAsTheyAreWritten) {
  EXPECT_EQ(table_of_json("{\"a\": 0.1000, \"b\": -1.5e-7, \"c\": 12345678901234567890, \"d\": -3}\n", "f"),
            "sep=,\na,b,c,d\n0.1000,-1.5e-7,12345678901234567890,-3\n");
}

TEST(JsonTable, KeepTextsOnALine) {
  EXPECT_EQ(table_of_json("\xef\xbb\xbf{\"a b\": \"one\\ntwo\\r\\nthree \\u00e9\", \"c\": \" x\"}", "f"),
            "sep=,\na b,c\n\"one two  three \xc3\xa9\",\" x\"\n");
}

TEST(JsonTable, MayBeAnArray) {
  const std::string table = "sep=,\na,b\n1,\"\"\n2.50,x\n";
  EXPECT_EQ(table_of_json("[{\"a\": 1}, {\"a\": 2.50, \"b\": \"x\"}]", "f"), table);
  EXPECT_EQ(table_of_json("\xef\xbb\xbf\n[\n {\"a\": 1},\n {\"a\": 2.50,\n \"b\": \"x\"}\n]\n", "f"), table);
  EXPECT_EQ(table_of_json("[]", "f"), "");
  // The beginning of a long file shows its columns.
  EXPECT_EQ(table_of_json("[{\"a\": 1}, {\"a\": 2.50, \"b\": \"x\"}, {\"a\": 3, \"b", "f", true), table);
  EXPECT_EQ(table_of_json("{\"a\": 1}\n{\"a\": 2.50, \"b\": \"x\"}\n{\"a\": 3, \"b", "f", true), table);
}

TEST(JsonTable, OfWhichAnElementIsNoObjectAreRefused) {
  const auto refused = [](const std::string& content, const std::string& message) {
    expect_error(ErrorCode::bad_input, "f: " + message, [&] { table_of_json(content, "f"); });
  };
  refused("[1, 2]", "object 1 of the array: a value, not an object");
  refused("[{\"a\": 1}, 2]", "object 2 of the array: a value, not an object");
  refused("[{\"a\": 1}, [2]]", "object 2 of the array: an array, not an object");
  refused("[{\"a\": 1}, {\"a\": [2]}]",
          "object 2 of the array: an array under \"a\", not a value; each object is a row");
  refused("[{\"a\": 1}, {\"a\": 2]", "object 2 of the array: no JSON from its byte 19 on");
  refused("[{}, {}]", "no object has a field");
  refused("[{\"a\": 1}, {\"a\": 1, \"b\": 2, \"a\": 3}]", "object 2 has two values of \"a\"; leave one of them");
}

TEST(JsonTable, OfWhichALineIsNoObjectAreRefused) {
  const auto refused = [](const std::string& line, const std::string& message) {
    expect_error(ErrorCode::bad_input, "f:2: " + message, [&] { table_of_json("{\"a\": 1}\n" + line, "f"); });
  };
  expect_error(ErrorCode::bad_input, "f: no line has a field", [] { table_of_json("{}\n{}\n", "f"); });
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

TEST(JsonTable, AreWhatTheirFieldsAre) {
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
  // An array on a single line that is longer than the beginning that is looked at.
  std::string array = "[";
  for (int i = 0; i < 5000; ++i) array += "{\"level\": " + std::to_string(i % 7) + ", \"flow\": 0.5}, ";
  array += "{\"level\": 1, \"flow\": 2}]";
  EXPECT_EQ(guess_kind({folder.write("a.json", array)}), SourceKind::series);
  EXPECT_EQ(open_series(folder.path("a.json"), {})->description().inputs.size(), 2u);
  EXPECT_EQ(guess_kind({folder.write("o.json", "{\n  \"name\": \"a package\",\n  \"version\": 3\n}\n")}),
            SourceKind::series);
  EXPECT_EQ(guess_kind({folder.write("n.json", "[{\"a\": {\"b\": 1}}]")}), SourceKind::series);
  EXPECT_EQ(guess_kind({folder.write("b.jsonl", "no JSON\n")}), SourceKind::series);
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
