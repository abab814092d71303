/* A task that checks by itself that what it comes after has been done, takes its time, and fails now and then. */
#include "ostinato.h"

/* What all tasks of a program share; `counts` has a row of `steps` for each op. */
typedef struct {
    int64_t *counts;
    int64_t steps;
    int64_t floor; /* steps before this one are not looked at */
    int64_t violations;
} shared;

typedef struct {
    shared *all;
    int64_t op;
    int64_t spin;
    int64_t n_sources;
    int64_t sources[]; /* pairs of an op and a distance */
} own;

static uint64_t mix(uint64_t op, uint64_t step, uint64_t seed) {
    uint64_t x = op * 0x9e3779b97f4a7c15u ^ step * 0xbf58476d1ce4e5b9u ^ seed * 0x94d049bb133111ebu;
    x ^= x >> 31;
    x *= 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

/* Scalars: a seed, and of how many calls one fails; 0 for none. */
int32_t watched(const ost_call *call) {
    const own *me = (const own *)call->user;
    shared *all = me->all;
    const int64_t step = (int64_t)call->step;
    const uint64_t seed = (uint64_t)call->scalars[0].i64, odds = (uint64_t)call->scalars[1].i64;
    for (int64_t i = 0; i < me->n_sources; ++i) {
        const int64_t before = step - me->sources[2 * i + 1];
        if (before >= all->floor && all->counts[me->sources[2 * i] * all->steps + before] != 1)
            __atomic_fetch_add(&all->violations, 1, __ATOMIC_RELAXED);
    }
    const uint64_t luck = mix((uint64_t)me->op, (uint64_t)step, seed);
    for (volatile int64_t i = (int64_t)(luck & 15) * me->spin; i > 0; --i)
        ;
    if (step < all->steps)
        all->counts[me->op * all->steps + step] += 1;
    return odds != 0 && (luck >> 8) % odds == 0 ? 7 : 0;
}
