// A driver that is new by its number and lacks functions.

extern "C" int cuDriverGetVersion(int* version);
extern "C" int cuDriverGetVersion(int* version) {
  constexpr int some = 13'000;
  return *version = some, 0;
}
