// The applications with loops that OpenMP runs on two threads.
template <class Body>
void each(int count, const Body& body) {
#pragma omp parallel for num_threads(2) schedule(static)
    for (int i = 0; i < count; ++i)
        body(i);
}

template <class Body>
void each_uneven(int count, const Body& body) {
#pragma omp parallel for num_threads(2) schedule(dynamic)
    for (int i = 0; i < count; ++i)
        body(i);
}

#include "applications.h"
