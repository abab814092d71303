// The applications with loops that Taskflow runs on two threads.
#include <taskflow/algorithm/for_each.hpp>
#include <taskflow/taskflow.hpp>

template <class Body, class Partitioner>
void run_loop(int count, const Body& body, const Partitioner& partitioner) {
    static tf::Executor executor(2);
    tf::Taskflow loop;
    loop.for_each_index(0, count, 1, body, partitioner);
    executor.run(loop).wait();
}

template <class Body>
void each(int count, const Body& body) {
    run_loop(count, body, tf::StaticPartitioner());
}

template <class Body>
void each_uneven(int count, const Body& body) {
    run_loop(count, body, tf::DynamicPartitioner());
}

#include "applications.h"
