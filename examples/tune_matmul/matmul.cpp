// One candidate of the search: C = A * B for square matrices, in blocks whose sizes are given when it is compiled.
//
//     c++ -O3 -DROWS=4 -DLANES=8 -DDEPTH=128 -DUNROLL=2 -o matmul matmul.cpp && ./matmul 512
//
// ROWS x LANES sums stay in registers while DEPTH products are added to each, UNROLL of them per turn of the loop.
// With ROWS=1, LANES=1 and a DEPTH of all, this is the loop that everybody writes first.

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef float Lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float))));
constexpr int rows = ROWS, lanes = LANES, depth = DEPTH, unroll = UNROLL;

static void multiply(const float* __restrict a, const float* __restrict b, float* __restrict c, int n) {
    for (int i = 0; i < n * n; ++i) {
        c[i] = 0;
    }
    for (int begin = 0; begin < n; begin += depth) {
        const int end = begin + depth < n ? begin + depth : n;
        for (int column = 0; column < n; column += lanes) {
            for (int row = 0; row < n; row += rows) {
                Lanes sums[rows] = {};
#pragma GCC unroll unroll
                for (int k = begin; k < end; ++k) {
                    const Lanes factors = *(const Lanes*)(b + k * n + column);
#pragma GCC unroll 16
                    for (int r = 0; r < rows; ++r) {
                        sums[r] += a[(row + r) * n + k] * factors;
                    }
                }
#pragma GCC unroll 16
                for (int r = 0; r < rows; ++r) {
                    *(Lanes*)(c + (row + r) * n + column) += sums[r];
                }
            }
        }
    }
}

// The matrices are as everybody else can make them too: those who check the product do not take them from here.
static void fill(float* matrix, int n, unsigned seed) {
    for (unsigned i = 0; i < (unsigned)(n * n); ++i) {
        matrix[i] = (float)((i + seed) * 2654435761u >> 8) / (1 << 24) - 0.5f;
    }
}

static double nanoseconds(void) {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

int main(int argc, char** argv) {
    const int n = argc > 1 ? atoi(argv[1]) : 0;
    const double most = 1e9 * (argc > 2 ? atof(argv[2]) : 0.5);
    if (n <= 0 || n % rows != 0 || n % lanes != 0) {
        fprintf(stderr, "usage: matmul N [SECONDS]; N is a multiple of %d and of %d\n", rows, lanes);
        return 2;
    }
    float* a = (float*)malloc(sizeof(float) * n * n);
    float* b = (float*)malloc(sizeof(float) * n * n);
    float* c = (float*)malloc(sizeof(float) * n * n);
    fill(a, n, 1);
    fill(b, n, 2);
    multiply(a, b, c, n);  // warms up, and is what is checked
    if (const char* scratch = getenv("OSTINATO_SCRATCH")) {
        char path[4096];
        snprintf(path, sizeof path, "%s/product", scratch);
        FILE* file = fopen(path, "wb");
        if (file == NULL || fwrite(c, sizeof(float), n * n, file) != (size_t)(n * n) || fclose(file) != 0) {
            perror(path);
            return 1;
        }
    }

    // Every sample is told, so the tuner knows how sure the median is. Without a tuner they are printed.
    const char* descriptor = getenv("OSTINATO_REPORT_FD");
    const int report = descriptor ? atoi(descriptor) : 1;
    const double start = nanoseconds();
    for (int samples = 0; samples < 3 || (samples < 100 && nanoseconds() - start < most); ++samples) {
        const double before = nanoseconds();
        multiply(a, b, c, n);
        dprintf(report, "{\"v\":1,\"type\":\"sample\",\"op\":\"matmul\",\"ns\":[%.0f]}\n", nanoseconds() - before);
    }
    return 0;
}
