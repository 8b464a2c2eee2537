#include "penstock/description/table.h"

#include "base/names.h"

namespace penstock {

namespace {

constexpr Names<4> missing_names = {"refuse", "carry", "interpolate", "mask"};

}  // namespace

std::string_view to_string(Missing missing) { return name_of(missing_names, missing); }
Missing parse_missing(std::string_view text) { return parse_name<Missing>("missing", missing_names, text); }

}  // namespace penstock
