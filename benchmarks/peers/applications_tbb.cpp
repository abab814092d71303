// The applications with loops that oneTBB runs on two threads.
#include <oneapi/tbb.h>

template <class Body, class Partitioner>
void run_loop(int count, const Body& body, const Partitioner& partitioner) {
    static tbb::task_arena arena(2);
    arena.execute([&] { tbb::parallel_for(0, count, body, partitioner); });
}

template <class Body>
void each(int count, const Body& body) {
    run_loop(count, body, tbb::static_partitioner());
}

template <class Body>
void each_uneven(int count, const Body& body) {
    run_loop(count, body, tbb::auto_partitioner());
}

#include "applications.h"
