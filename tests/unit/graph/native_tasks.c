/* Native tasks for the tests. */
#include "ostinato.h"

/* dst[i] = src[i] * factor + offset, along one axis, for any strides */
int32_t scale(const ost_call *call) {
    const ost_array *src = &call->arrays[0], *dst = &call->arrays[1];
    if (call->n_arrays != 2 || call->n_scalars != 2 || src->ndim != 1)
        return 3;
    for (int64_t i = 0; i < src->shape[0]; ++i) {
        double x = *(const double *)((const char *)src->data + i * src->strides[0]);
        *(double *)((char *)dst->data + i * dst->strides[0]) = x * call->scalars[0].f64 + (double)call->scalars[1].i64;
    }
    return 0;
}

/* writes step, user and the number of elements of a matrix */
int32_t inspect(const ost_call *call) {
    int64_t *out = (int64_t *)call->arrays[1].data;
    const ost_array *matrix = &call->arrays[0];
    out[0] = (int64_t)call->step;
    out[1] = (int64_t)(uintptr_t)call->user;
    out[2] = 1;
    for (int64_t axis = 0; axis < matrix->ndim; ++axis)
        out[2] *= matrix->shape[axis];
    out[3] = matrix->ndim;
    return 0;
}

int32_t fail(const ost_call *call) { return (int32_t)call->scalars[0].i64; }
