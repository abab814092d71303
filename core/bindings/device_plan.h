// From what Python says of device operations to the device side of a plan.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "devices/device_ops.h"

namespace ostinato {

// Where the operations of a schedule are, by number.
struct OpIndices {
    std::vector<std::uint32_t> of;       // by operation
    std::vector<std::uint32_t> lane_of;  // by operation

    explicit OpIndices(const Schedule& schedule) : of(schedule.n_ops), lane_of(schedule.n_ops) {
        for (std::uint32_t l = 0; l < schedule.lanes.size(); ++l) {
            const LaneOrder& lane = schedule.lanes[l];
            for (std::uint32_t i = 0; i < lane.ops.size(); ++i) {
                of[lane.ops[i]] = lane.first + i;
                lane_of[lane.ops[i]] = l;
            }
        }
    }
};

// Null where there is nothing for devices. `plan` has its native and Python sides already.
std::unique_ptr<DevicePlan> build_device(const Schedule& schedule, const OpIndices& indices, Plan& plan,
                                         const nanobind::list& operations, const nanobind::list& write_backs,
                                         bool fenced, const nanobind::list& memory);

// What can be captured: device, operations, how often, how often it was, why it was not, of which that is told (-1: of
// none).
nanobind::list segments_of(const Plan& plan);

// What a fence of the device operation number `op` waits for.
std::uint32_t device_op_of(const DevicePlan& devices, std::uint32_t op);

}  // namespace ostinato
