// Flat NumPy arrays as spans.
#pragma once

#include <nanobind/ndarray.h>

#include <span>

namespace ostinato {

template <class T>
using Flat = nanobind::ndarray<const T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

template <class T>
std::span<const T> flat(const Flat<T>& array) {
    return {array.data(), array.shape(0)};
}

}  // namespace ostinato
