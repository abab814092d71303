#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace ostinato::passes {

// Improves a choice for each op by moving one of `movable` to another of `choices`, or by swapping two, as long as that
// makes `judge` smaller; asks that at most `tries` times.
std::vector<int32_t> local_search(std::vector<int32_t> chosen, std::span<const int32_t> movable, int32_t choices,
                                  const std::function<double(const std::vector<int32_t>&)>& judge, int64_t tries);

}  // namespace ostinato::passes
