/* The stencil of ranks_worker.py in C, by MPI as one writes it by hand: prints how long a step takes, in microseconds.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks_rows.h"

enum { kRows = 16 };
static const double kSeconds = 20e-6;
static double u[2][kRows][kColumns];

static void task(const double *x, double *y) {
    const double end = MPI_Wtime() + kSeconds;
    memcpy(y, x, sizeof(double) * kColumns);
    while (MPI_Wtime() < end) {
    }
}

static void step(int n, int rank, int size) {
    double (*x)[kColumns] = u[n % 2], (*y)[kColumns] = u[1 - n % 2];
    const int first = rank * kRows / size, end = (rank + 1) * kRows / size;
    MPI_Request requests[4];
    const int open = exchange_rows(x, first, end, rank, size, requests);
    for (int row = first + (rank > 0); row < end - (rank < size - 1); ++row) /* while messages are on their way */
        task(x[row > 0 ? row - 1 : 0], y[row]);
    MPI_Waitall(open, requests, MPI_STATUSES_IGNORE);
    if (rank > 0)
        task(x[first - 1], y[first]);
    if (rank < size - 1)
        task(x[end - 2], y[end - 1]);
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int steps = argc > 1 ? atoi(argv[1]) : 100, rounds = argc > 2 ? atoi(argv[2]) : 10;
    double *samples = malloc(sizeof(double) * (size_t)(rounds + 1));
    int n = 0;
    for (int round = 0; round <= rounds; ++round) {
        const double begin = MPI_Wtime();
        for (int i = 0; i < steps; ++i)
            step(n++, rank, size);
        MPI_Barrier(MPI_COMM_WORLD);
        samples[round] = (MPI_Wtime() - begin) / steps * 1e6;
    }
    qsort(samples + 1, (size_t)rounds, sizeof(double), compare); /* the first round is to warm up */
    if (rank == 0)
        printf("%g\n", samples[1 + rounds / 2]);
    free(samples);
    MPI_Finalize();
    return 0;
}
