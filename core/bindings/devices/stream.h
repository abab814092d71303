#pragma once

#include <memory>

#include "devices/stream.h"

namespace ostinato {

// A stream as Python holds it, by value like devices.
struct StreamOwner {
    std::shared_ptr<Stream> stream;
};

}  // namespace ostinato
