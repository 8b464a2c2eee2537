#include "train/event_file.h"

#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <random>

#include "base/check.h"
#include "io/protobuf.h"
#include "penstock/file_writer.h"
#include "penstock/sources.h"

namespace penstock::training {

namespace {

using io::ProtobufMessage;

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Numbers of the fields in TensorFlow's event.proto and summary.proto.
constexpr int event_wall_time = 1, event_step = 2, event_file_version = 3, event_summary = 5, event_session_log = 7;
constexpr int summary_value = 1, value_tag = 1, value_simple = 2;
constexpr int session_status = 1, session_start = 1;

ProtobufMessage new_event(Index step) {
  ProtobufMessage event;
  event.number(event_wall_time, wall_time());
  if (step > 0) event.integer(event_step, step);
  return event;
}

std::uint32_t masked_crc(std::string_view bytes) {
  constexpr std::uint32_t mask = 0xa282ead8;  // TFRecord's, so that checksums of checksums stay apart
  return std::rotr(crc32c(bytes), 15) + mask;
}

constexpr std::array<std::uint32_t, 256> crc32c_table() {
  constexpr std::uint32_t polynomial = 0x82f63b78;  // Castagnoli's, bits reversed
  std::array<std::uint32_t, 256> table = {};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? polynomial : 0);
    table[i] = value;
  }
  return table;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> table = crc32c_table();
  std::uint32_t crc = ~std::uint32_t{0};
  for (const char byte : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~crc;
}

EventFile::EventFile(const std::string& folder) {
  if (folder.empty()) return;
  const std::string advice = address_advice(folder, true);
  if (!advice.empty()) fail(ErrorCode::io_failure, "{}: cannot write events{}", folder, advice);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail(ErrorCode::io_failure, "{}: cannot write events: {}", folder, why_not_written(folder, error.value()));
  // TensorBoard reads the files of a folder in the order of their names, and knows them by the part in the middle.
  std::string path =
      fmt::format("{}/events.out.tfevents.{:010.0f}.penstock.{:08x}", folder, wall_time(), std::random_device()());
  file_ = LogFile(std::move(path), LogFile::Begin::create, "cannot write events");
  ProtobufMessage event = new_event(0);
  event.bytes(event_file_version, "brain.Event:2");
  write(event.encoded());
}

void EventFile::write(const std::string& event) {
  std::string record;
  io::append_little_endian(record, event.size(), 64);
  io::append_little_endian(record, masked_crc(record), 32);
  record += event;
  io::append_little_endian(record, masked_crc(event), 32);
  file_.write(record);
}

void EventFile::scalars(Index step, const std::vector<Scalar>& values) {
  if (!file_.is_open()) return;
  ProtobufMessage summary;
  for (const auto& [name, number] : values) {
    ProtobufMessage value;
    value.bytes(value_tag, name);
    value.number(value_simple, static_cast<float>(number));
    summary.message(summary_value, value);
  }
  ProtobufMessage event = new_event(step);
  event.message(event_summary, summary);
  write(event.encoded());
}

void EventFile::restart(Index step) {
  if (!file_.is_open()) return;
  ProtobufMessage log;
  log.integer(session_status, session_start);
  ProtobufMessage event = new_event(step);
  event.message(event_session_log, log);
  write(event.encoded());
}

}  // namespace penstock::training
