#pragma once

namespace penstock {

/// How a thread treats denormal numbers (not zero, but below 1.2e-38; double: 2.2e-308): as the standard says, or as
/// zeros. With them some processors are up to a hundred times slower.
class DenormalMode {
 public:
  static DenormalMode of_this_thread();
  static DenormalMode zeros();
  void set() const;

 private:
  explicit DenormalMode(unsigned bits) : bits_(bits) {}
  unsigned bits_;
};

/// While it lives, this thread computes in that mode.
class WithDenormals {
 public:
  explicit WithDenormals(DenormalMode mode) : before_(DenormalMode::of_this_thread()) { mode.set(); }
  ~WithDenormals() { before_.set(); }
  WithDenormals(const WithDenormals&) = delete;
  WithDenormals& operator=(const WithDenormals&) = delete;

 private:
  DenormalMode before_;
};

}  // namespace penstock
