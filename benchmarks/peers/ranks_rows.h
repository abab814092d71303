/* The messages of a stencil whose rows are shared out to ranks, as one writes them by hand. */
#pragma once

#include <mpi.h>

enum { kColumns = 64 };

/* Starts to exchange the rows at the borders of rows `first` to `end` with the ranks beside; returns how many requests.
 */
static int exchange_rows(double (*x)[kColumns], int first, int end, int rank, int size, MPI_Request* requests) {
    int open = 0;
    if (rank > 0) {
        MPI_Irecv(x[first - 1], kColumns, MPI_DOUBLE, rank - 1, 0, MPI_COMM_WORLD, &requests[open++]);
        MPI_Isend(x[first], kColumns, MPI_DOUBLE, rank - 1, 0, MPI_COMM_WORLD, &requests[open++]);
    }
    if (rank < size - 1) {
        MPI_Irecv(x[end], kColumns, MPI_DOUBLE, rank + 1, 0, MPI_COMM_WORLD, &requests[open++]);
        MPI_Isend(x[end - 1], kColumns, MPI_DOUBLE, rank + 1, 0, MPI_COMM_WORLD, &requests[open++]);
    }
    return open;
}
