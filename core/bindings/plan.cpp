
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/device_plan.h"
#include "bindings/messages.h"
#include "bindings/numpy.h"
#include "devices/device_ops.h"
#include "lanes/builtin_tasks.h"
#include "outside/operations.h"
#include "python/device.h"
#include "python/external.h"

namespace nb = nanobind;

namespace ostinato {

namespace {

// Addresses, shapes and strides of NumPy arrays; equal shapes and strides are stored once.
class Views {
public:
    void add(nb::handle array) {
        const ArrayFields fields = fields_of(array.ptr());
        shape_.assign(fields.shape.begin(), fields.shape.end());
        shape_.insert(shape_.end(), fields.strides.begin(), fields.strides.end());
        const auto [at, is_new] = known_.try_emplace(shape_, dims_.size());
        if (is_new)
            dims_.insert(dims_.end(), shape_.begin(), shape_.end());
        views_.push_back({fields.data, static_cast<int>(fields.shape.size()), at->second});
    }

    // The plan's arrays: those of `table` in turn.
    void describe(std::span<const std::int32_t> table, Plan& plan) const {
        plan.dims = dims_;
        plan.arrays.reserve(table.size());
        plan.data.reserve(table.size());
        for (const std::int32_t index : table) {
            const View& view = views_.at(static_cast<std::size_t>(index));
            const std::int64_t* const shape = plan.dims.data() + view.dims;
            plan.arrays.push_back({view.data, view.ndim, shape, shape + view.ndim});
            plan.data.push_back(view.data);
        }
    }

private:
    struct View {
        void* data;
        int ndim;
        std::size_t dims;
    };

    std::vector<std::int64_t> shape_, dims_;
    std::map<std::vector<std::int64_t>, std::size_t> known_;
    std::vector<View> views_;
};

// Sorts `patches` by lane and returns where each lane's begin.
template <class Patch>
std::vector<std::uint32_t> by_lane(std::vector<std::pair<std::uint32_t, Patch>>& patches, std::size_t n_lanes,
                                   std::vector<Patch>& out) {
    std::stable_sort(patches.begin(), patches.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::uint32_t> begin(n_lanes + 1, 0);
    for (const auto& [lane, patch] : patches) {
        ++begin[lane + 1];
        out.push_back(patch);
    }
    for (std::size_t i = 0; i < n_lanes; ++i)
        begin[i + 1] += begin[i];
    return begin;
}

using PythonEntry = std::tuple<std::uint32_t, nb::object, nb::object, nb::tuple, std::uint32_t, nb::tuple, nb::tuple>;

PythonOwned<PythonPlan> build_python(const Schedule& schedule, const OpIndices& indices, const nb::list& entries) {
    PythonOwned<PythonPlan> plan(new PythonPlan);
    plan->index.assign(schedule.n_stored, 0);
    plan->step_numbers.resize(schedule.lanes.size());
    std::vector<std::pair<std::uint32_t, PythonPlan::Patch>> patches;
    for (nb::handle entry : entries) {
        const auto [id, callable, keywords, phases, period_class, steps, values] = nb::cast<PythonEntry>(entry);
        PythonOp op;
        op.callable = callable.ptr();
        plan->held.emplace_back(callable.ptr());
        if (!keywords.is_none()) {
            op.keywords = keywords.ptr();
            plan->held.emplace_back(keywords.ptr());
        }
        op.first = static_cast<std::uint32_t>(plan->arguments.size()) + 1;
        op.n_phases = static_cast<std::uint16_t>(phases.size());
        op.period_class = static_cast<std::uint16_t>(period_class);
        for (nb::handle phase : phases) {
            const auto arguments = nb::cast<nb::tuple>(phase);
            op.n_arguments = static_cast<std::uint32_t>(arguments.size());
            plan->arguments.push_back(nullptr);
            for (nb::handle argument : arguments)
                plan->arguments.push_back(Py_NewRef(argument.ptr()));
        }
        op.n_positional = op.n_arguments - (keywords.is_none() ? 0 : static_cast<std::uint32_t>(nb::len(keywords)));
        op.step_begin = static_cast<std::uint32_t>(plan->step_positions.size());
        for (nb::handle position : steps)
            plan->step_positions.push_back(nb::cast<std::uint32_t>(position));
        op.step_end = static_cast<std::uint32_t>(plan->step_positions.size());
        if (op.step_begin != op.step_end)
            plan->step_numbers[indices.lane_of.at(id)].wanted = true;
        plan->for_step_entries(op, [](PyObject*& entry) { Py_CLEAR(entry); });
        const auto index = static_cast<std::uint32_t>(plan->ops.size());
        for (nb::handle patch : values) {
            const auto [position, value] = nb::cast<std::tuple<std::uint32_t, std::uint32_t>>(patch);
            patches.push_back({indices.lane_of.at(id), {index, position, value}});
        }
        plan->index[indices.of[id]] = index;
        plan->ops.push_back(op);
    }
    plan->patch_begin = by_lane(patches, schedule.lanes.size(), plan->patches);
    return plan;
}

// What an external operation does, as Python says it: one of the names below, and what goes with it. `stored`: the
// index of the operation in the plan.
std::shared_ptr<const ExternalOp> external_op(const std::string& kind, const nb::tuple& with, std::uint32_t stored) {
    const auto number = [&](std::size_t i) { return nb::cast<std::uint32_t>(with[i]); };
    const auto phase = [&] {  // (a barrier or None, the phase of step 0, the number of the run's barrier or -1)
        BarrierPhase phase;
        if (!with[0].is_none())
            phase.barrier = nb::cast<BarrierHandle>(with[0]).barrier;
        phase.base = nb::cast<std::uint64_t>(with[1]);
        phase.param = nb::cast<std::int32_t>(with[2]);
        return phase;
    };
    if (kind == "precondition")
        return std::make_shared<PreconditionOp>(number(0));
    if (kind == "postcondition")
        return std::make_shared<PostconditionOp>(number(0));
    if (kind == "arrive") {
        PythonObjectHandle value;
        if (!with[5].is_none())
            value.reset(new PythonObject{PythonReference(with[5].ptr())});
        return std::make_shared<ArrivalOp>(phase(), nb::cast<std::uint64_t>(with[3]), nb::cast<std::int32_t>(with[4]),
                                           std::move(value), nb::cast<std::int32_t>(with[6]));
    }
    if (kind == "await")
        return std::make_shared<PhaseWaitOp>(phase());
    if (kind == "acquire")
        return std::make_shared<AcquireOp>(nb::cast<ReservationHandle>(with[0]).reservation, number(1),
                                           nb::cast<bool>(with[2]));
    if (kind == "release")
        return std::make_shared<ReleaseOp>(nb::cast<ReservationHandle>(with[0]).reservation, number(1));
    if (kind == "blocking")
        return std::make_shared<BlockingTaskOp>(number(0));
    if (kind == "send" || kind == "recv")
        return std::make_shared<MessageOp>(nb::cast<ChannelHandle>(with[0]).channel, stored);
    throw nb::value_error("an external operation of an unknown kind");
}

// (the device operation that it completes, whether it is lazy; if left out: no)
std::shared_ptr<const ExternalOp> fence(Plan& plan, std::uint32_t lane, const Schedule& schedule, std::uint32_t id,
                                        const nb::tuple& with) {
    if (!plan.device)
        throw nb::value_error("a fence without device operations");
    const bool lazy = with.size() > 1 && nb::cast<bool>(with[1]);
    const std::uint32_t number = device_op_of(*plan.device, nb::cast<std::uint32_t>(with[0]));
    if (!plan.device->ops[number].records)
        throw nb::value_error("a fence of an operation that is not recorded");
    if (lazy)
        plan.device->lazy[lane].push_back(schedule.external_of.at(id));
    return std::make_shared<FenceOp>(number, lazy);
}

PlanHandle make_plan(const ScheduleHandle& handle, const Flat<std::uint64_t>& function, const Flat<std::uint64_t>& user,
                     const Flat<std::int64_t>& table_begin, const Flat<std::int32_t>& table,
                     const Flat<std::int32_t>& n_arrays, const Flat<std::int32_t>& period_class, const nb::list& views,
                     const Flat<std::int64_t>& scalar_begin, const Flat<std::int32_t>& n_scalars,
                     const Flat<std::uint64_t>& scalars, const Flat<std::int32_t>& value_op,
                     const Flat<std::int32_t>& value_slot, const Flat<std::int32_t>& value_index,
                     const Flat<std::int32_t>& step_op, const Flat<std::int32_t>& step_slot, const nb::list& python,
                     const nb::list& external, const nb::list& device, const nb::list& write_back, bool fenced,
                     const nb::list& memory) {
    const Schedule& schedule = *handle.schedule;
    auto plan = std::make_shared<Plan>();
    const OpIndices indices(schedule);
    Views described;
    for (nb::handle view : views)
        described.add(view);
    described.describe(flat(table), *plan);
    plan->arrays_owner.reset(new PythonObject{PythonReference(views.ptr())});
    plan->scalars.resize(scalars.shape(0));
    for (std::size_t i = 0; i < plan->scalars.size(); ++i)
        plan->scalars[i].i64 = static_cast<std::int64_t>(scalars.data()[i]);
    plan->native.resize(schedule.n_stored);
    for (std::uint32_t id = 0; id < schedule.n_ops; ++id) {
        NativeOp& op = plan->native[indices.of[id]];
        op.function = reinterpret_cast<ost_task>(function.data()[id]);
        op.tables = static_cast<std::uint32_t>(table_begin.data()[id]);
        op.period_class = static_cast<std::uint16_t>(period_class.data()[id]);
        op.call.scalars = plan->scalars.data() + scalar_begin.data()[id];
        op.call.n_arrays = n_arrays.data()[id];
        op.call.n_scalars = n_scalars.data()[id];
        op.call.user = reinterpret_cast<void*>(user.data()[id]);
        plan->turn(op, 0);
    }
    plan->lay_out_phases(schedule.periods);
    std::vector<std::pair<std::uint32_t, ScalarPatch>> value_patches;
    for (std::size_t i = 0; i < value_op.shape(0); ++i) {
        const auto op = static_cast<std::size_t>(value_op.data()[i]);
        value_patches.push_back({indices.lane_of.at(op),
                                 {static_cast<std::uint32_t>(scalar_begin.data()[op] + value_slot.data()[i]),
                                  static_cast<std::uint32_t>(value_index.data()[i])}});
    }
    plan->scalar_patch_begin = by_lane(value_patches, schedule.lanes.size(), plan->scalar_patches);
    std::vector<std::pair<std::uint32_t, StepPatch>> step_patches;
    for (std::size_t i = 0; i < step_op.shape(0); ++i) {
        const auto op = static_cast<std::size_t>(step_op.data()[i]);
        step_patches.push_back(
            {indices.lane_of.at(op), {static_cast<std::uint32_t>(scalar_begin.data()[op] + step_slot.data()[i])}});
    }
    plan->step_patch_begin = by_lane(step_patches, schedule.lanes.size(), plan->step_patches);
    bool needs_python = python.size() != 0;
    plan->external.resize(schedule.externals.size());
    for (nb::handle entry : external) {
        const auto [id, kind, with] = nb::cast<std::tuple<std::uint32_t, std::string, nb::tuple>>(entry);
        needs_python = needs_python || kind == "arrive";  // its value may be a parameter, an object
        if (kind != "fence")
            plan->external[schedule.external_of.at(id)] = external_op(kind, with, indices.of.at(id));
    }
    if (needs_python)
        plan->python = build_python(schedule, indices, python);
    plan->device = build_device(schedule, indices, *plan, device, write_back, fenced, memory);
    for (nb::handle entry : external) {
        const auto [id, kind, with] = nb::cast<std::tuple<std::uint32_t, std::string, nb::tuple>>(entry);
        if (kind == "fence")
            plan->external[schedule.external_of.at(id)] = fence(*plan, indices.lane_of[id], schedule, id, with);
    }
    for (std::shared_ptr<const ExternalOp>& op : plan->external) {
        if (op == nullptr)
            op = std::make_shared<NothingOp>();
    }
    return {plan};
}

}  // namespace

}  // namespace ostinato

void bind_plan(nb::module_& module) {
    using namespace nb::literals;
    using namespace ostinato;
    module.def("issues_for", issues_for, "low"_a, "high"_a,
               "Whether this thread is in a task that puts work on a stream, of a program that works on memory of "
               "devices that some of these addresses stand for.");
    nb::class_<PlanHandle>(module, "Plan", "What the operations of a schedule call, on which arrays.")
        .def_static("build", &make_plan, "schedule"_a, "function"_a, "user"_a, "table_begin"_a, "table"_a, "n_arrays"_a,
                    "period_class"_a, "views"_a, "scalar_begin"_a, "n_scalars"_a, "scalars"_a, "value_op"_a,
                    "value_slot"_a, "value_index"_a, "step_op"_a, "step_slot"_a, "python"_a, "external"_a,
                    "device"_a = nb::list(), "write_back"_a = nb::list(), "fenced"_a = false, "memory"_a = nb::list())
        .def(
            "copy",
            [](const PlanHandle& self) {
                if (self.plan->device)
                    throw nb::value_error("the streams of a plan are its own: build another");
                return PlanHandle{self.plan->copy()};
            },
            "Another, to be used at the same time, on the same arrays.")
        .def_prop_ro(
            "segments", [](const PlanHandle& self) { return segments_of(*self.plan); },
            "What of its work for devices can be captured: device, operations, how often, how often it was, why it was "
            "not, and the operation of which that is told, or -1.");
    module.def(
        "builtin_task",
        [](const std::string& name) {
            const auto address = [](ost_task task) { return reinterpret_cast<std::uintptr_t>(task); };
            if (name == "copy")
                return address(&copy_task);
            if (name == "fill")
                return address(&fill_task);
            if (name == "until")
                return address(&until_task);
            throw nb::value_error(("name must be 'copy', 'fill' or 'until', got '" + name + "'").c_str());
        },
        "name"_a, "The address of a native task of the compiler's own: 'copy', 'fill' or 'until'.");
}
