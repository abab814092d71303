// The slow turns of the lane loop: everything that does not happen in every step of every run.
#pragma once

#include <cstdint>

#include "lanes/lane.h"
#include "lanes/worker.h"

namespace ostinato {

// Moves `lane` into the next run, when there is one and its fence allows. False: the lane is blocked.
bool enter_next_run(Worker& worker, Lane& lane);

// The lane has done all of its run's steps. False: it must wait for a device before it leaves, and is blocked.
bool leave_run(Worker& worker, Lane& lane);

enum class Progress : std::uint8_t {
    kDone,     // the batch is
    kYielded,  // the worker is wanted elsewhere; the lane stands between two operations
    kBlocked,  // an external operation waits
};

// Runs what is left of the batch, looking at the poison history of every operation. Kinds of all sorts.
Progress run_batch_slowly(Worker& worker, Lane& lane, const Batch& batch);

// Runs a batch, or what is left of it, of any kind but plain native ones.
Progress run_other_batch(Worker& worker, Lane& lane, const Batch& batch);

// Stops within a batch, before the operation at `position`.
Progress stand_before(Lane& lane, std::uint32_t position, Progress why);

// Records an operation that began at `start` and ends now.
void record(Worker& worker, Lane& lane, std::uint32_t position, std::int64_t start, Status status);

// Runs the operation at `position` once, with tracing. Returns its code; `failure` for a Python one.
std::int32_t run_operation(Worker& worker, Lane& lane, Kind kind, std::uint32_t position, ExceptionHandle& failure);

// What an until operation's body returns when the step under way is the run's last.
constexpr std::int32_t kLastStep = INT32_MIN;

}  // namespace ostinato
