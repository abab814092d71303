#include "bindings/device_plan.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "bindings/devices/bindings.h"
#include "python/plan.h"

namespace nb = nanobind;

namespace ostinato {

namespace {

constexpr std::uint32_t kNone = UINT32_MAX;
constexpr std::uint64_t kMostCaptures = 64;  // of a segment whose operations' rings have several lengths

using Bits = nb::ndarray<const std::uint8_t, nb::c_contig, nb::device::cpu>;

Activity activity_of(const nb::object& given) {
    Activity activity;
    if (given.is_none())
        return activity;
    const auto [first, later] = nb::cast<std::tuple<Bits, Bits>>(given);
    activity.period = later.shape(0);
    activity.n_first = first.shape(1);
    if (first.shape(0) != activity.period || activity.period == 0)
        throw nb::value_error("an activity has as many rows for first steps as steps later");
    activity.first.assign(first.data(), first.data() + first.size());
    activity.later.assign(later.data(), later.data() + later.size());
    return activity;
}

std::uint32_t number_of(DevicePlan& devices, const StreamOwner& owner) {
    const auto at = std::find(devices.streams.begin(), devices.streams.end(), owner.stream);
    if (at == devices.streams.end())
        devices.streams.push_back(owner.stream);
    return static_cast<std::uint32_t>(std::find(devices.streams.begin(), devices.streams.end(), owner.stream) -
                                      devices.streams.begin());
}

FlagTable flags_of(const nb::tuple& phases, std::uint32_t& n_flags) {
    FlagTable table;
    if (phases.size() == 0)
        return table;
    table.begin.push_back(0);
    for (nb::handle phase : phases) {
        for (const std::uint32_t flag : nb::cast<std::vector<std::uint32_t>>(phase)) {
            table.flags.push_back(flag);
            n_flags = std::max(n_flags, flag + 1);
        }
        table.begin.push_back(static_cast<std::uint32_t>(table.flags.size()));
    }
    return table;
}

void check_phases(std::size_t given, std::uint32_t period) {
    if (given != 1 && given != period)
        throw nb::value_error("a device operation is said once, or for each phase of its rings");
}

void take_body(DeviceOp& op, const nb::tuple& body, std::uint32_t slot, Plan& plan, DevicePlan& devices,
               std::uint32_t period) {
    const auto kind = nb::cast<std::string>(body[0]);
    if (kind == "copy") {
        op.body = DeviceOp::Body::kCopy;
        for (nb::handle phase : nb::list(body[1]))
            op.transfers.push_back(nb::cast<const Transfer&>(phase));
        check_phases(op.transfers.size(), period);
    } else if (kind == "fill") {
        op.body = DeviceOp::Body::kFill;
        for (nb::handle phase : nb::list(body[1]))
            op.patterns.push_back(nb::cast<const Pattern&>(phase));
        check_phases(op.patterns.size(), period);
    } else if (kind == "python" || kind == "captured") {
        op.body = DeviceOp::Body::kPython;
        const std::uint32_t number = plan.python->index[slot];
        const PythonOp& python = plan.python->ops[number];
        op.captured = kind == "captured" && python.step_begin == python.step_end;
        if (op.captured) {
            if (!devices.recording)
                devices.recording.reset(new RecordingStreams);
            devices.recording->bodies.emplace(number,
                                              RecordingStreams::Body{PythonReference(nb::handle(body[1]).ptr()),
                                                                     nb::cast<std::vector<std::uint32_t>>(body[2])});
        }
    } else if (kind == "native") {
        op.body = DeviceOp::Body::kNative;
        const auto scalar = nb::cast<std::int64_t>(body[1]);
        if (scalar >= 0) {
            const auto at = static_cast<std::size_t>(plan.native[slot].call.scalars - plan.scalars.data() + scalar);
            plan.scalars.at(at).i64 = static_cast<std::int64_t>(op.handle);
        }
    } else if (kind != "nothing") {
        throw nb::value_error("no such body of a device operation");
    }
}

bool can_be_captured(const DeviceOp& op) {
    return op.activity.period == 0 &&
           (op.body == DeviceOp::Body::kCopy || op.body == DeviceOp::Body::kFill || op.captured);
}

// By operation of a segment, the earlier ones that it comes after.
std::vector<std::vector<std::uint32_t>> order_in(const Segment& segment, const LaneOrder& lane,
                                                 const OpIndices& indices,
                                                 const std::vector<std::vector<std::uint32_t>>& after,
                                                 const DevicePlan& devices) {
    std::vector<std::vector<std::uint32_t>> found(segment.end - segment.begin);
    for (std::uint32_t at = segment.begin; at < segment.end; ++at) {
        for (const std::uint32_t before : after[devices.index[lane.first + at]]) {
            const std::uint32_t slot = indices.of.at(before);
            if (slot >= lane.first + segment.begin && slot < lane.first + at)
                found[at - segment.begin].push_back(slot - lane.first - segment.begin);
        }
    }
    return found;
}

// Finds what is captured together.
void add_segments(const Schedule& schedule, const OpIndices& indices, const Plan& plan,
                  const std::vector<std::vector<std::uint32_t>>& after, DevicePlan& devices) {
    devices.segment_at.assign(schedule.n_stored, kNoSegment);
    devices.segment_of_python.assign(plan.python ? plan.python->ops.size() : 0, kNoSegment);
    for (const LaneOrder& lane : schedule.lanes) {
        for (const Batch& batch : lane.batches) {
            if (batch.kind != Kind::kDevice)
                continue;
            const auto op = [&](std::uint32_t at) -> const DeviceOp& {
                return devices.ops[devices.index[lane.first + at]];
            };
            std::uint32_t end = 0;
            for (std::uint32_t begin = batch.begin; begin < batch.end; begin = end) {
                end = begin + 1;
                if (!can_be_captured(op(begin)))
                    continue;
                std::uint64_t period = schedule.periods[op(begin).period_class];
                bool worth_it = op(begin).captured;
                for (; end < batch.end && !op(end - 1).records && can_be_captured(op(end)) && op(end).waits.empty();
                     ++end) {
                    const std::uint64_t both = std::lcm(period, std::uint64_t{schedule.periods[op(end).period_class]});
                    if (both > kMostCaptures)
                        break;
                    period = both;
                    worth_it = true;
                }
                if (!worth_it)
                    continue;
                const auto number = static_cast<std::uint32_t>(devices.segments.size());
                devices.segment_at[lane.first + begin] = number;
                Segment& segment = devices.segments.emplace_back();
                segment.begin = begin;
                segment.end = end;
                segment.after = order_in(segment, lane, indices, after, devices);
                segment.captures.resize(period);
                for (std::uint32_t at = begin; at < end; ++at) {
                    if (op(at).body == DeviceOp::Body::kPython)
                        devices.segment_of_python[plan.python->index[lane.first + at]] = number;
                }
            }
        }
    }
}

}  // namespace

std::unique_ptr<DevicePlan> build_device(const Schedule& schedule, const OpIndices& indices, Plan& plan,
                                         const nb::list& operations, const nb::list& write_backs, bool fenced,
                                         const nb::list& memory) {
    if (operations.size() == 0 && write_backs.size() == 0)
        return nullptr;
    auto devices = std::make_unique<DevicePlan>();
    devices->fenced = fenced || write_backs.size() != 0;
    devices->index.assign(schedule.n_stored, kNone);
    devices->of_op.assign(schedule.n_ops, kNone);
    devices->stream_of_lane.assign(schedule.lanes.size(), -1);
    devices->lazy.resize(schedule.lanes.size());
    devices->ops.reserve(operations.size());
    using After = std::vector<std::uint32_t>;
    using Entry =
        std::tuple<std::uint32_t, StreamOwner, nb::tuple, nb::list, bool, nb::object, nb::tuple, nb::tuple, After>;
    std::vector<std::vector<std::pair<std::uint32_t, std::uint32_t>>> waits;
    std::vector<After> after;  // by device operation, others of its stream within the step
    std::uint32_t n_flags = 0;
    for (nb::handle entry : operations) {
        auto [id, stream, body, its_waits, records, activity, sets, clears, others] = nb::cast<Entry>(entry);
        const std::uint32_t slot = indices.of.at(id), lane = indices.lane_of[id];
        DeviceOp& op = devices->ops.emplace_back();
        op.op = id;
        op.records = records;
        op.stream = number_of(*devices, stream);
        op.device = stream.stream->device.get();
        op.handle = stream.stream->handle;
        op.period_class = plan.native[slot].period_class;
        const std::uint32_t period = schedule.periods[op.period_class];
        take_body(op, body, slot, plan, *devices, period);
        op.activity = activity_of(activity);
        op.sets = flags_of(sets, n_flags);
        op.clears = flags_of(clears, n_flags);
        for (const FlagTable& table : {op.sets, op.clears}) {
            if (!table.begin.empty())
                check_phases(table.begin.size() - 1, period);
        }
        waits.push_back(nb::cast<std::vector<std::pair<std::uint32_t, std::uint32_t>>>(its_waits));
        after.push_back(std::move(others));
        devices->index[slot] = devices->of_op[id] = static_cast<std::uint32_t>(devices->ops.size() - 1);
        std::int32_t& of_lane = devices->stream_of_lane[lane];
        if (of_lane >= 0 && of_lane != static_cast<std::int32_t>(op.stream))
            throw nb::value_error("a lane enqueues on one stream");
        of_lane = static_cast<std::int32_t>(op.stream);
    }
    // No lane is two window periods ahead of another, and who waits looks back as far as it says.
    std::vector<std::uint64_t> back(devices->ops.size(), 0);
    for (std::size_t i = 0; i < waits.size(); ++i) {
        for (const auto& [other, distance] : waits[i]) {
            const std::uint32_t number = device_op_of(*devices, other);
            if (!devices->ops[number].records)
                throw nb::value_error("a stream waits for an operation that is not recorded");
            devices->ops[i].waits.push_back({number, distance});
            back[number] = std::max<std::uint64_t>(back[number], distance);
        }
    }
    for (std::size_t i = 0; i < devices->ops.size(); ++i) {
        if (devices->ops[i].records)
            devices->ops[i].marks.resize(std::bit_ceil(2 * schedule.window_period + 1 + back[i]));
    }
    for (nb::handle entry : write_backs) {
        const auto [flag, stream, transfer] = nb::cast<std::tuple<std::uint32_t, StreamOwner, Transfer>>(entry);
        devices->write_backs.push_back({flag, number_of(*devices, stream), transfer});
        n_flags = std::max(n_flags, flag + 1);
    }
    devices->dirty = std::vector<std::atomic<std::uint32_t>>(n_flags);
    devices->traced.resize(devices->streams.size());
    for (nb::handle range : memory)
        devices->memory.push_back(nb::cast<std::pair<std::uint64_t, std::uint64_t>>(range));
    add_segments(schedule, indices, plan, after, *devices);
    devices->captures = std::make_unique<Captures>(devices->segments.size());
    return devices;
}

nb::list segments_of(const Plan& plan) {
    nb::list segments;
    if (!plan.device)
        return segments;
    const DevicePlan& devices = *plan.device;
    for (std::size_t slot = 0; slot < devices.segment_at.size(); ++slot) {
        const std::uint32_t number = devices.segment_at[slot];
        if (number == kNoSegment)
            continue;
        const Segment& segment = devices.segments[number];
        std::vector<std::uint32_t> ops;
        for (std::uint32_t at = 0; at < segment.end - segment.begin; ++at)
            ops.push_back(devices.ops[devices.index[slot + at]].op);
        const Captured found = devices.captures->of(number);
        const nb::object why = found.refused ? nb::cast(found.why) : nb::none();
        const std::int64_t failed = found.failed == kNoOperation ? -1 : std::int64_t{found.failed};
        segments.append(nb::make_tuple(devices.streams[devices.ops[devices.index[slot]].stream]->name, ops,
                                       segment.captures.size(), found.times, why, failed));
    }
    return segments;
}

std::uint32_t device_op_of(const DevicePlan& devices, std::uint32_t op) {
    if (op >= devices.of_op.size() || devices.of_op[op] == kNone)
        throw nb::value_error("there is no such device operation");
    return devices.of_op[op];
}

}  // namespace ostinato
