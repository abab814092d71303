// Vectors on cache lines of their own, for what one lane writes while its neighbours write theirs.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

#include "park/timeline.h"

namespace ostinato {

template <class T>
struct LineAllocator {
    using value_type = T;
    LineAllocator() = default;
    template <class U>
    explicit LineAllocator(const LineAllocator<U>&) {}

    T* allocate(std::size_t n) {
        const std::size_t bytes = (n * sizeof(T) + kLinePair - 1) / kLinePair * kLinePair;
        return static_cast<T*>(::operator new(bytes, std::align_val_t{kLinePair}));
    }
    void deallocate(T* data, std::size_t) { ::operator delete(data, std::align_val_t{kLinePair}); }
    bool operator==(const LineAllocator&) const { return true; }
};

template <class T>
using LineVector = std::vector<T, LineAllocator<T>>;

}  // namespace ostinato
