// A file descriptor with one owner, who closes it.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

namespace ostinato::reaper {

class Descriptor {
public:
    Descriptor() = default;
    explicit Descriptor(int number) : number_(number) {}
    Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~Descriptor() {
        if (number_ >= 0) {
            ::close(number_);
        }
    }

    int number() const { return number_; }

private:
    int number_ = -1;
};

// All of a file, wherever its position is; as much as can be read.
inline std::string read_all(const Descriptor& file) {
    constexpr std::size_t piece = 4096;
    std::string text;
    for (ssize_t count = 1; count > 0;) {
        const std::size_t size = text.size();
        text.resize(size + piece);
        count = ::pread(file.number(), text.data() + size, piece, static_cast<off_t>(size));
        text.resize(size + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    }
    return text;
}

}  // namespace ostinato::reaper
