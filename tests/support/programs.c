/* The native task of the random programs: what it writes depends on all that it reads, on its scalars and on the step.
 */
#include "ostinato.h"

static uint64_t read_all(const ost_array *array, int64_t axis, const char *at, uint64_t sum) {
    if (axis == array->ndim)
        return (sum ^ *(const uint64_t *)at) * 1099511628211u + 1;
    for (int64_t i = 0; i < array->shape[axis]; ++i)
        sum = read_all(array, axis + 1, at + i * array->strides[axis], sum);
    return sum;
}

static void write_all(const ost_array *array, int64_t axis, char *at, uint64_t *value) {
    if (axis == array->ndim) {
        *(int64_t *)at = (int64_t)(*value >> 40) % 1009;
        *value = *value * 6364136223846793005u + 1442695040888963407u;
        return;
    }
    for (int64_t i = 0; i < array->shape[axis]; ++i)
        write_all(array, axis + 1, at + i * array->strides[axis], value);
}

/* `user` says how long to dawdle, and for each array how it is used: 1 read, 2 written, 3 both. */
int32_t mix(const ost_call *call) {
    const int64_t *user = (const int64_t *)call->user;
    uint64_t sum = call->step * 2654435761u + 17;
    for (int32_t i = 0; i < call->n_scalars; ++i)
        sum = (sum ^ (uint64_t)call->scalars[i].i64) * 1099511628211u;
    for (int32_t i = 0; i < call->n_arrays; ++i)
        if (user[1 + i] & 1)
            sum = read_all(&call->arrays[i], 0, (const char *)call->arrays[i].data, sum);
    for (volatile int64_t i = (int64_t)(sum >> 56) * user[0]; i > 0; --i)
        ;
    for (int32_t i = 0; i < call->n_arrays; ++i)
        if (user[1 + i] & 2)
            write_all(&call->arrays[i], 0, (char *)call->arrays[i].data, &sum);
    return 0;
}
