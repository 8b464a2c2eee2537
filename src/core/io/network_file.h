#pragma once

#include <string>

#include "io/safetensors.h"
#include "network/network.h"

/// Model files of networks of any structure: safetensors files whose metadata field "penstock.network" holds the
/// structure as JSON. Format 1:
///
///     {"format": 1, "network": NETWORK, "sample_rate": HZ}
///
///     NETWORK   {"values": [NAME, ...], "constants": [[VALUE, TENSOR], ...], "inputs": [INPUT, ...],
///                "outputs": [VALUE, ...], "states": [[INPUT, OUTPUT], ...], "nodes": [NODE, ...]}
///     INPUT     {"value": VALUE, "type": TYPE, "shape": [EXTENT, ...], "axes": [NAME, ...]}
///     NODE      {"op": NAME, "name": NAME, "reads": [VALUE, ...], "writes": [VALUE, ...],
///                "attributes": [ATTRIBUTE, ...], "bodies": [NETWORK, ...]}
///     ATTRIBUTE {"name": NAME, "integers": [...]}, or with "numbers": [...] or "text": TEXT in place of "integers"
///
/// VALUE is a position in "values", or -1: absent. TENSOR is the tensor "constant.TENSOR" of the file, which holds the
/// type and the shape of the constant; several values may share one. INPUT and OUTPUT of states are positions in
/// "inputs" and "outputs". TYPE is f32, f64, i8, u8, i32, i64 or bool. EXTENT is -1 where the caller chooses it; "axes"
/// names extents, and equal names have equal extents ("" is no name). "sample_rate" is absent unless it is known.
namespace penstock::io {

/// Metadata key of a network's structure.
inline constexpr const char* network_key = "penstock.network";

/// Writes a network as write_safetensors() does, with a checksum.
void write_network(const std::string& path, const network::Network& network);

/// Reads a network, whose constants lie in memory of their own. Throws Error: incompatible if the file holds no network
/// or one of a later format; bad_input, with the place, if it is contradictory.
network::Network read_network(const SafetensorsFile& file);

}  // namespace penstock::io
