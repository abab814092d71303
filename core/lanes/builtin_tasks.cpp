#include "lanes/builtin_tasks.h"

#include <array>
#include <cstring>

#include "lanes/lane_loop.h"

namespace ostinato {

namespace {

constexpr int kMostDims = 64;  // NumPy's own limit

// Calls body(source, target, count, source_stride, target_stride) for every innermost row.
template <int N, class Body>
void for_rows(const std::array<const ost_array*, N>& arrays, Body&& body) {
    const ost_array& shape = *arrays[0];
    const auto ndim = static_cast<int>(shape.ndim);
    for (int d = 0; d < ndim; ++d) {
        if (shape.shape[d] == 0)
            return;
    }
    std::array<char*, N> at;
    for (int a = 0; a < N; ++a)
        at[static_cast<std::size_t>(a)] = static_cast<char*>(arrays[static_cast<std::size_t>(a)]->data);
    std::int64_t index[kMostDims] = {};
    for (;;) {
        body(at);
        int d = ndim - 2;
        for (; d >= 0; --d) {
            if (++index[d] < shape.shape[d]) {
                for (std::size_t a = 0; a < N; ++a)
                    at[a] += arrays[a]->strides[d];
                break;
            }
            index[d] = 0;
            for (std::size_t a = 0; a < N; ++a)
                at[a] -= arrays[a]->strides[d] * (shape.shape[d] - 1);
        }
        if (d < 0)
            return;
    }
}

template <class Item>
void copy_row(char* source, char* target, std::int64_t count, std::int64_t from, std::int64_t to) {
    for (std::int64_t i = 0; i < count; ++i, source += from, target += to) {
        Item item;
        std::memcpy(&item, source, sizeof item);
        std::memcpy(target, &item, sizeof item);
    }
}

}  // namespace

std::int32_t copy_task(const ost_call* call) {
    const ost_array& source = call->arrays[0];
    const ost_array& target = call->arrays[1];
    const std::int64_t item = call->scalars[0].i64;
    const std::int64_t last = source.ndim - 1;
    const std::int64_t count = last < 0 ? 1 : source.shape[last];
    const std::int64_t from = last < 0 ? item : source.strides[last];
    const std::int64_t to = last < 0 ? item : target.strides[last];
    for_rows<2>({&source, &target}, [&](const std::array<char*, 2>& at) {
        if (from == item && to == item) {
            std::memcpy(at[1], at[0], static_cast<std::size_t>(count * item));
            return;
        }
        switch (item) {
            case 1:
                return copy_row<std::uint8_t>(at[0], at[1], count, from, to);
            case 2:
                return copy_row<std::uint16_t>(at[0], at[1], count, from, to);
            case 4:
                return copy_row<std::uint32_t>(at[0], at[1], count, from, to);
            case 8:
                return copy_row<std::uint64_t>(at[0], at[1], count, from, to);
            default:
                for (std::int64_t i = 0; i < count; ++i)
                    std::memcpy(at[1] + i * to, at[0] + i * from, static_cast<std::size_t>(item));
        }
    });
    return 0;
}

std::int32_t fill_task(const ost_call* call) {
    const ost_array& target = call->arrays[0];
    const std::int64_t item = call->scalars[0].i64;
    const void* const value = call->scalars + 1;
    const std::int64_t last = target.ndim - 1;
    const std::int64_t count = last < 0 ? 1 : target.shape[last];
    const std::int64_t stride = last < 0 ? item : target.strides[last];
    for_rows<1>({&target}, [&](const std::array<char*, 1>& at) {
        for (std::int64_t i = 0; i < count; ++i)
            std::memcpy(at[0] + i * stride, value, static_cast<std::size_t>(item));
    });
    return 0;
}

std::int32_t until_task(const ost_call* call) {
    const auto every = static_cast<std::uint64_t>(call->scalars[0].i64);
    if ((call->step + 1) % every != 0)
        return 0;
    const auto* const flag = static_cast<const unsigned char*>(call->arrays[0].data);
    const auto* const telling = reinterpret_cast<const unsigned char*>(call->scalars + 2);
    bool nonzero = false;
    for (std::int64_t i = 0; i < call->scalars[1].i64; ++i)
        nonzero |= (flag[i] & telling[i]) != 0;
    return nonzero ? kLastStep : 0;
}

}  // namespace ostinato
