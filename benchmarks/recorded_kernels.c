/* Kernels whose configurations are recorded as spaces for the race; see record_spaces.py. Each takes its parameters
   and the arrays, and is called through ctypes, so a call lasts long enough that the way in does not count. */
#include <stddef.h>
#include <string.h>

enum { MATRIX = 160, SIDE = 768, SORTED = 20000 };

/* C += A * B, in tiles; `unroll` is 1, 2 or 4. */
void matmul(int tile_i, int tile_k, int unroll, const float *a, const float *b, float *c) {
    memset(c, 0, sizeof(float) * MATRIX * MATRIX);
    for (int ii = 0; ii < MATRIX; ii += tile_i) {
        for (int kk = 0; kk < MATRIX; kk += tile_k) {
            const int last_i = ii + tile_i < MATRIX ? ii + tile_i : MATRIX;
            const int last_k = kk + tile_k < MATRIX ? kk + tile_k : MATRIX;
            for (int i = ii; i < last_i; ++i) {
                float *row = c + (ptrdiff_t)i * MATRIX;
                int k = kk;
                for (; unroll == 4 && k + 4 <= last_k; k += 4) {
                    const float *from = b + (ptrdiff_t)k * MATRIX;
                    const float *by = a + (ptrdiff_t)i * MATRIX + k;
                    for (int j = 0; j < MATRIX; ++j) {
                        row[j] += by[0] * from[j] + by[1] * from[j + MATRIX] + by[2] * from[j + 2 * MATRIX] +
                                  by[3] * from[j + 3 * MATRIX];
                    }
                }
                for (; unroll == 2 && k + 2 <= last_k; k += 2) {
                    const float *from = b + (ptrdiff_t)k * MATRIX;
                    const float *by = a + (ptrdiff_t)i * MATRIX + k;
                    for (int j = 0; j < MATRIX; ++j) {
                        row[j] += by[0] * from[j] + by[1] * from[j + MATRIX];
                    }
                }
                for (; k < last_k; ++k) {
                    const float *from = b + (ptrdiff_t)k * MATRIX;
                    const float by = a[(ptrdiff_t)i * MATRIX + k];
                    for (int j = 0; j < MATRIX; ++j) {
                        row[j] += by * from[j];
                    }
                }
            }
        }
    }
}

/* The transpose of a square matrix, in blocks. */
void transpose(int block_i, int block_j, int by_columns, const float *from, float *to) {
    for (int outer = 0; outer < SIDE; outer += by_columns ? block_j : block_i) {
        for (int inner = 0; inner < SIDE; inner += by_columns ? block_i : block_j) {
            const int first_i = by_columns ? inner : outer;
            const int first_j = by_columns ? outer : inner;
            const int last_i = first_i + block_i < SIDE ? first_i + block_i : SIDE;
            const int last_j = first_j + block_j < SIDE ? first_j + block_j : SIDE;
            for (int i = first_i; i < last_i; ++i) {
                for (int j = first_j; j < last_j; ++j) {
                    to[(ptrdiff_t)j * SIDE + i] = from[(ptrdiff_t)i * SIDE + j];
                }
            }
        }
    }
}

static void insertion(int *values, int n, int gap) {
    for (int i = gap; i < n; ++i) {
        const int value = values[i];
        int j = i;
        for (; j >= gap && values[j - gap] > value; j -= gap) {
            values[j] = values[j - gap];
        }
        values[j] = value;
    }
}

static void merge_sort(int *values, int *spare, int n, int threshold, int gap, int skip) {
    if (n <= threshold) {
        if (gap > 1) {
            insertion(values, n, gap);
        }
        insertion(values, n, 1);
        return;
    }
    const int half = n / 2;
    merge_sort(values, spare, half, threshold, gap, skip);
    merge_sort(values + half, spare, n - half, threshold, gap, skip);
    if (skip && values[half - 1] <= values[half]) {
        return;
    }
    memcpy(spare, values, sizeof(int) * (size_t)half);
    int left = 0, right = half, at = 0;
    while (left < half && right < n) {
        values[at++] = values[right] < spare[left] ? values[right++] : spare[left++];
    }
    memcpy(values + at, spare + left, sizeof(int) * (size_t)(half - left));
}

/* A merge sort that leaves runs up to `threshold` to insertion, with steps of `gap` first; `skip` looks whether halves
   are in order already. */
void sort(int threshold, int gap, int skip, const int *from, int *values, int *spare) {
    memcpy(values, from, sizeof(int) * SORTED);
    merge_sort(values, spare, SORTED, threshold, gap, skip);
}
