/* What ranks_native_worker.py measures, in C, by MPI as one writes it by hand. Arguments: rounds, then cases such as
 * stencil:ROWS:ITERATIONS:STEPS. Prints for each case the microseconds that a step takes, one number for each round.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks_rows.h"

enum { kMostRows = 64, kMostMessages = 64 };
static double u[2][kMostRows][kColumns];
static char *buffers[2][kMostMessages];
static int rank, size;

static void task(const double *x, double *y, long iterations) {
    double value = x[0];
    for (long i = 0; i < iterations; ++i)
        value = value * 0.999 + 1e-3;
    memcpy(y, x, sizeof(double) * kColumns);
    y[0] = value;
}

static void stencil(int n, int rows, long iterations) {
    double (*x)[kColumns] = u[n % 2], (*y)[kColumns] = u[1 - n % 2];
    const int first = rank * rows / size, end = (rank + 1) * rows / size;
    MPI_Request requests[4];
    const int open = exchange_rows(x, first, end, rank, size, requests);
    const int low = first + (rank > 0), high = end - (rank < size - 1);
    for (int row = low; row < high; ++row) /* while messages are on their way */
        task(x[row > 0 ? row - 1 : 0], y[row], iterations);
    MPI_Waitall(open, requests, MPI_STATUSES_IGNORE);
    if (low > high) { /* one row, which needs both */
        task(x[first - 1], y[first], iterations);
        return;
    }
    if (rank > 0)
        task(x[first - 1], y[first], iterations);
    if (rank < size - 1)
        task(x[end > first + 1 || rank > 0 ? end - 2 : end - 1], y[end - 1], iterations);
}

static void pingpong(int bytes) {
    for (int turn = 0; turn < 2; ++turn) {
        if (rank == turn)
            MPI_Send(buffers[0][0], bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD);
        else if (rank == 1 - turn)
            MPI_Recv(buffers[0][0], bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

/* Rank 0 sends so many messages of 8 bytes. */
static void flood(int messages) {
    MPI_Request requests[kMostMessages];
    for (int i = 0; i < messages; ++i) {
        if (rank == 0)
            MPI_Isend(buffers[1][i], 8, MPI_BYTE, 1, i, MPI_COMM_WORLD, &requests[i]);
        else if (rank == 1)
            MPI_Irecv(buffers[0][i], 8, MPI_BYTE, 0, i, MPI_COMM_WORLD, &requests[i]);
    }
    if (rank < 2)
        MPI_Waitall(messages, requests, MPI_STATUSES_IGNORE);
}

/* Both ranks send and receive so many messages of 8 bytes, while a task runs. */
static void exchange(int messages, long iterations) {
    MPI_Request requests[2 * kMostMessages];
    for (int i = 0; i < messages; ++i) {
        MPI_Irecv(buffers[0][i], 8, MPI_BYTE, 1 - rank, i, MPI_COMM_WORLD, &requests[2 * i]);
        MPI_Isend(buffers[1][i], 8, MPI_BYTE, 1 - rank, i, MPI_COMM_WORLD, &requests[2 * i + 1]);
    }
    task(u[0][0], u[1][0], iterations);
    MPI_Waitall(2 * messages, requests, MPI_STATUSES_IGNORE);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 2 * kMostMessages; ++i)
        buffers[i / kMostMessages][i % kMostMessages] = calloc(1, 1 << 20);
    const int rounds = atoi(argv[1]);
    for (int at = 2; at < argc; ++at) {
        char kind[16];
        long a = 0, b = 0, steps = 0;
        if (sscanf(argv[at], "%15[^:]:%ld:%ld:%ld", kind, &a, &b, &steps) != 4)
            return 1;
        if (rank == 0)
            printf("%s", argv[at]);
        for (int round = 0; round <= rounds; ++round) {
            MPI_Barrier(MPI_COMM_WORLD);
            const double begin = MPI_Wtime();
            for (long i = 0; i < steps; ++i) {
                if (strcmp(kind, "stencil") == 0)
                    stencil((int)i, (int)a, b);
                else if (strcmp(kind, "pingpong") == 0)
                    pingpong((int)a);
                else if (strcmp(kind, "flood") == 0)
                    flood((int)a);
                else
                    exchange((int)a, b);
            }
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == 0 && round > 0) /* the first round is to warm up */
                printf(" %g", (MPI_Wtime() - begin) / (double)steps * 1e6);
        }
        if (rank == 0)
            printf("\n");
    }
    MPI_Finalize();
    return 0;
}
