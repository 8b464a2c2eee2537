#include <algorithm>
#include <cmath>
#include <cstdint>

#include "data/table/csv.h"
#include "fuzz/refusal.h"
#include "penstock/data.h"

using namespace penstock;

namespace {

using Records = std::vector<std::vector<std::string>>;

Records parse(std::string_view text) {
  data::CsvReader reader(text, ',', "fuzz");
  std::vector<data::Field> fields;
  Records records;
  Index line = 1;
  while (reader.next(fields)) {
    test::check(!fields.empty(), "a record without fields");
    records.emplace_back();
    for (const auto& field : fields) {
      test::check(field.line >= line && field.column >= 1, "a place that goes backwards");
      line = field.line;
      records.back().push_back(field.text());
    }
  }
  return records;
}

/// Fully quoted, any list of fields can be written and must come back as it was.
void check_round_trip(const Records& records) {
  std::string text;
  for (const auto& record : records) {
    for (std::size_t i = 0; i < record.size(); ++i) {
      text += i == 0 ? "\"" : ",\"";
      for (const char c : record[i]) text += c == '"' ? std::string("\"\"") : std::string(1, c);
      text += '"';
    }
    text += "\r\n";
  }
  test::check(parse(text) == records, "fields that change when they are quoted");
}

void read_numbers(std::string_view text) {
  data::CsvReader reader(text, ',', "fuzz");
  std::vector<data::Field> fields;
  if (!reader.next(fields)) return;
  const data::TableHeader header(fields, "fuzz");
  while (reader.next(fields)) {
    header.check_width(fields);
    for (std::size_t i = 0; i < fields.size(); ++i) {
      data::ColumnKind kind = data::ColumnKind::number;
      test::check(std::isfinite(header.number(fields, i, kind)), "a number that is none");
      test::check(header.looks_numeric(fields[i]), "a number that does not look like one");
    }
  }
}

/// Reads the same text as a stream. Each line may fail without the others.
void read_rows(const std::string& text) {
  DataDescription description;
  description.task = Task::forecast;
  description.inputs = {{"x", 1.0, 2.0}, {"y", 0.0, 1.0}};
  const std::size_t first = std::min(text.find('\n'), text.size());
  RowReader reader(description, text.substr(0, first), "fuzz");
  std::vector<float> features(2);
  for (std::size_t begin = first; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin + 1), text.size());
    test::accepted([&, line = text.substr(begin + 1, end - begin - 1)] {
      if (!reader.read(line, features)) return;
      test::check(std::isfinite(features[0]) && std::isfinite(features[1]), "a feature that is no number");
      test::check(reader.column("x").has_value() && !reader.text(*reader.column("x")).empty(), "a lost column");
    });
    begin = end;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  test::accepted([&] { check_round_trip(parse(text)); });
  test::accepted([&] { read_numbers(text); });
  test::accepted([&] { read_rows(text); });
  return 0;
}
