#pragma once

#include <string>
#include <string_view>

#include "network/network.h"

namespace penstock::io::audio {

/// Makes a stream of a model of RTNeural, GuitarML or Neural Amp Modeler. Throws Error as Network::import_audio() does.
network::Network import_audio(std::string_view content, const std::string& source);

}  // namespace penstock::io::audio
