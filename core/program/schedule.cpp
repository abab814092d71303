#include "program/schedule.h"

namespace ostinato {

namespace {
template <class T>
std::size_t held(const std::vector<T>& v) {
    return v.capacity() * sizeof(T);
}
}  // namespace

std::size_t Schedule::bytes() const {
    std::size_t total = held(pred_begin) + held(pred_op) + held(pred_distance) + held(periods);
    for (const LaneOrder& lane : lanes)
        total += held(lane.ops) + held(lane.batches) + held(lane.waits) + held(lane.window);
    return total;
}

}  // namespace ostinato
