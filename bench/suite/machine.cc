#include "bench/suite/machine.h"

#include <sys/utsname.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>

namespace penstock::bench {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// A line "NAME:   123 kB" of /proc/meminfo, in bytes; 0 if it is not there.
double memory_info(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return 1024.0 * std::strtod(line.c_str() + name.size() + 1, nullptr);
  }
  return 0.0;
}

}  // namespace

Machine describe_machine() {
  Machine machine;
  machine.system = system_info();
  utsname name{};
  if (uname(&name) == 0) machine.kernel = std::string(name.sysname) + " " + name.release;
#ifdef __clang__
  machine.compiler = __VERSION__;
#else
  machine.compiler = "GCC " __VERSION__;
#endif
  machine.governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  machine.memory_bytes = memory_info("MemTotal");
  double load = 0.0;
  if (getloadavg(&load, 1) == 1) machine.load = load;
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  char text[32];
  if (gmtime_r(&now, &utc) != nullptr && std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &utc) > 0)
    machine.date = text;
  return machine;
}

}  // namespace penstock::bench
