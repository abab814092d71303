/* The native task of the soak: it checks its place in the order, works on its arrays, logs, and fails now and then. */
#include "ostinato.h"

/* What all tasks of a program share; `counts` has a row of `steps` for each. */
typedef struct {
    int64_t *counts;
    int64_t steps;
    int64_t violations;
    const int64_t *begin;   /* by row, and one more: where its sources begin */
    const int64_t *sources; /* pairs of a row and a distance */
    int64_t *holders;       /* by reservation */
    int64_t seen[4];        /* of a violation: run, row, step, and the row of what it comes after */
} shared;

typedef struct {
    shared *all;
    int64_t spin;
    int64_t modes[]; /* by array: 1 read, 2 written, 3 both */
} own;

enum { ROW, RUN, FLOOR, SEED, ODDS, RESERVATION, WEIGHT };
static const int64_t EXCLUSIVE = 1 << 20;

static uint64_t mix(uint64_t row, uint64_t step, uint64_t seed) {
    uint64_t x = row * 0x9e3779b97f4a7c15u ^ step * 0xbf58476d1ce4e5b9u ^ seed * 0x94d049bb133111ebu;
    x ^= x >> 31;
    x *= 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

static void violated(const ost_call *call, shared *all, int64_t source) {
    if (__atomic_fetch_add(&all->violations, 1, __ATOMIC_RELAXED) != 0)
        return;
    const int64_t seen[] = {call->scalars[RUN].i64, call->scalars[ROW].i64, (int64_t)call->step, source};
    for (int i = 0; i < 4; ++i)
        all->seen[i] = seen[i];
}

static void check_sources(const ost_call *call, shared *all) {
    const int64_t row = call->scalars[ROW].i64, floor = call->scalars[FLOOR].i64;
    for (int64_t i = all->begin[row]; i < all->begin[row + 1]; ++i) {
        const int64_t distance = all->sources[2 * i + 1], before = (int64_t)call->step - distance;
        const int looks = floor < 0 ? distance == 0 : before >= floor;
        if (looks && before < all->steps && all->counts[all->sources[2 * i] * all->steps + before] == 0)
            violated(call, all, all->sources[2 * i]);
    }
}

static void dawdle(uint64_t luck, int64_t spin) {
    for (volatile int64_t i = (int64_t)(luck & 15) * spin; i > 0; --i)
        ;
}

static void calculate(const ost_call *call, const int64_t *modes) {
    uint64_t sum = (uint64_t)call->scalars[ROW].i64 * 31 + call->step * 17 + (uint64_t)call->scalars[RUN].i64;
    for (int32_t i = 0; i < call->n_arrays; ++i)
        for (int64_t j = 0; (modes[i] & 1) && j < call->arrays[i].shape[0]; ++j)
            sum = (sum ^ ((const uint64_t *)call->arrays[i].data)[j]) * 1099511628211u + 1;
    for (int32_t i = 0; i < call->n_arrays; ++i)
        for (int64_t j = 0; (modes[i] & 2) && j < call->arrays[i].shape[0]; ++j) {
            ((int64_t *)call->arrays[i].data)[j] = (int64_t)(sum >> 40);
            sum = sum * 6364136223846793005u + 1442695040888963407u;
        }
}

int32_t soak(const ost_call *call) {
    const own *me = (const own *)call->user;
    shared *all = me->all;
    const int64_t row = call->scalars[ROW].i64, weight = call->scalars[WEIGHT].i64, step = (int64_t)call->step;
    const uint64_t seed = (uint64_t)call->scalars[SEED].i64, odds = (uint64_t)call->scalars[ODDS].i64;
    const uint64_t luck = mix((uint64_t)row, call->step, seed);
    int64_t *holders = &all->holders[call->scalars[RESERVATION].i64];
    check_sources(call, all);
    if (weight != 0) {
        const int64_t others = __atomic_fetch_add(holders, weight, __ATOMIC_RELAXED);
        if (weight == EXCLUSIVE ? others != 0 : others >= EXCLUSIVE)
            violated(call, all, -1);
    }
    dawdle(luck, me->spin);
    calculate(call, me->modes);
    if (weight != 0)
        __atomic_fetch_sub(holders, weight, __ATOMIC_RELAXED);
    if (step < all->steps)
        all->counts[row * all->steps + step] += call->scalars[RUN].i64 + 1;
    return odds != 0 && (luck >> 8) % odds == 0 ? 7 : 0;
}
