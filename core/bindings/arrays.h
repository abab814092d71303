// Flat NumPy arrays as spans, and vectors as NumPy arrays.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

namespace ostinato {

template <class T>
using Flat = nanobind::ndarray<const T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

template <class T>
std::span<const T> flat(const Flat<T>& array) {
    return {array.data(), array.shape(0)};
}

template <class T>
using Out = nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>, nanobind::c_contig>;
template <class T>
using OutRows = nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<2>, nanobind::c_contig>;

// Hands a vector over as a NumPy array, without a copy.
template <class Array, class T>
Array give_as(std::vector<T>&& values, std::initializer_list<std::size_t> shape) {
    auto* kept = new std::vector<T>(std::move(values));
    nanobind::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return Array(kept->data(), shape, owner);
}

template <class T>
Out<T> give(std::vector<T>&& values) {
    const std::size_t size = values.size();
    return give_as<Out<T>>(std::move(values), {size});
}

template <class T>
OutRows<T> give_rows(std::vector<T>&& values, std::size_t columns) {
    const std::size_t rows = values.size() / columns;
    return give_as<OutRows<T>>(std::move(values), {rows, columns});
}

}  // namespace ostinato
