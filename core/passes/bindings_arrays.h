#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace ostinato::passes {

template <class T>
using In = nanobind::ndarray<const T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

template <class T>
std::span<const T> span_of(const In<T>& array) {
    return {array.data(), array.size()};
}

// Hands a vector over as a NumPy array of the given number of columns (0: one dimension), without a copy.
template <class T>
nanobind::object give(std::vector<T>&& values, std::size_t columns = 0) {
    auto* kept = new std::vector<T>(std::move(values));
    nanobind::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    const std::size_t shape[2] = {columns == 0 ? kept->size() : kept->size() / columns, columns};
    return nanobind::cast(nanobind::ndarray<nanobind::numpy, T>(kept->data(), columns == 0 ? 1 : 2, shape, owner));
}

}  // namespace ostinato::passes
