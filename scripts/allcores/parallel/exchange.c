/* Collectives of the ranks of one machine, in memory that they share.

exchange.py calls this by ctypes; nothing here knows torch or Python.

Each rank copies a part of its tensor into its row of a block, all meet, and each reads the rows of
the others. The parts use two blocks in turn: a rank arrives at the meeting of part k + 1 after it
has read block k, so once all have passed that meeting, the block may be written for part k + 2.
Numbers are combined in the order of the ranks, so that every rank, and every run, gets the same bits.

A call returns WAITING after a tenth of a second, so that Python can see to signals and to ranks
that have ended. It then calls proceed(), which continues where the collective was. */

#define _GNU_SOURCE
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { DONE = -1, WAITING = -2 }; /* else the place of a rank that calls another collective */
enum { ALL_REDUCE, REDUCE, REDUCE_SCATTER, BROADCAST, ALL_GATHER };
enum { SUM, MEAN, PRODUCT, MINIMUM, MAXIMUM, AND, OR, XOR };
enum { IDLE, ARRIVED, ARRIVED_AGAIN };
enum {
    LINE = 64,             /* bytes of a cache line, for what one rank writes and others poll */
    TILE = 1024,           /* numbers that are combined at a time, in a core's own cache */
    SMALL = 1 << 15,       /* bytes of all rows up to which each rank combines everything, for a single meeting */
    PAUSES = 64,           /* between two looks at the clock */
    EAGER = 20000,         /* nanoseconds of a wait before the core is offered to others */
    LOOK = 100 * 1000000,  /* nanoseconds after which a wait returns to Python */
};

/* The head of the memory. */
typedef struct {
    _Atomic uint32_t arrived, round, sleepers;
    uint32_t failed; /* Python's */
    char rest[LINE - 16];
} Head;

/* A collective; all ranks must call the same one. */
typedef struct {
    int64_t kind, type, operation, root; /* a place */
    int64_t length, size;                /* numbers; bytes of a number, 0 to meet only */
} Call;

/* What a rank shows to the others; `calls` is for an even and an odd number of parts so far. */
typedef struct {
    int64_t left; /* Python's */
    _Atomic int64_t arrivals;
    Call calls[2];
    int64_t rest[2];
} Rank;

/* A rank's side of a group; not shared. */
typedef struct {
    Head *head;
    Rank *ranks;
    char *blocks;
    char **inputs, **outputs; /* a pointer, or one for each rank */
    int64_t row, spin;        /* bytes of a row; nanoseconds to poll before sleeping */
    int32_t place, count;     /* of this rank among all */
    Call call;                /* that runs, and how far it is: */
    int64_t start, part;      /* numbers */
    int64_t step;             /* parts that were exchanged so far */
    uint32_t phase, round;
} Member;

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* --- The barrier: a counter, and a number that the last one to arrive raises. --- */

static void arrive(Member *m, int phase) {
    Head *head = m->head;
    m->phase = phase;
    m->round = atomic_load(&head->round);
    if (atomic_fetch_add(&head->arrived, 1) + 1 == (uint32_t)m->count) {
        atomic_store(&head->arrived, 0);
        atomic_fetch_add(&head->round, 1);
        if (atomic_load(&head->sleepers)) syscall(SYS_futex, &head->round, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    }
    atomic_fetch_add(&m->ranks[m->place].arrivals, 1); /* last: a rank that dies before it is missing */
}

/* Wait until all have arrived; return whether they have. */
static int met(Member *m) {
    Head *head = m->head;
    int64_t begun = 0;
    for (unsigned turn = 1; atomic_load_explicit(&head->round, memory_order_acquire) == m->round; turn++) {
        relax();
        if (turn % PAUSES) continue;
        int64_t time = now(), waited = time - (begun ? begun : (begun = time));
        if (waited >= m->spin) break;
        if (waited > EAGER) sched_yield();
    }
    if (atomic_load(&head->round) != m->round) return 1;
    int64_t end = now() + LOOK, left; /* signals end a wait, and are not to end looks */
    atomic_fetch_add(&head->sleepers, 1);
    while (atomic_load(&head->round) == m->round && (left = end - now()) > 0) {
        struct timespec rest = {0, left};
        syscall(SYS_futex, &head->round, FUTEX_WAIT, m->round, &rest, NULL, 0);
    }
    atomic_fetch_sub(&head->sleepers, 1);
    return atomic_load(&head->round) != m->round;
}

/* --- Numbers: each operation on each type; 16-bit floats are combined as 32-bit ones. --- */

#define COMBINE(T, NAME, RESULT)                                                 \
    static void NAME##_##T(void *total, const void *row, int64_t n) {            \
        T *restrict a = total;                                                   \
        const T *restrict b = row;                                               \
        for (int64_t i = 0; i < n; i++) a[i] = (T)(RESULT);                      \
    }
#define DIVIDE(T)                                                                \
    static void divide_##T(void *total, int64_t by, int64_t n) {                 \
        T *a = total;                                                            \
        for (int64_t i = 0; i < n; i++) a[i] = (T)(a[i] / by);                   \
    }
/* Not a number if one of both is. */
#define LEAST(OTHER_IS_BETTER) a[i] != a[i] ? a[i] : (OTHER_IS_BETTER || b[i] != b[i]) ? b[i] : a[i]
#define ARITHMETIC(T)                                                            \
    COMBINE(T, add, a[i] + b[i])                                                 \
    COMBINE(T, multiply, a[i] * b[i])                                            \
    COMBINE(T, minimum, LEAST(b[i] < a[i]))                                      \
    COMBINE(T, maximum, LEAST(b[i] > a[i]))                                      \
    DIVIDE(T)
#define WHOLE(T)                                                                 \
    ARITHMETIC(T)                                                                \
    COMBINE(T, and, a[i] & b[i])                                                 \
    COMBINE(T, or, a[i] | b[i])                                                  \
    COMBINE(T, xor, a[i] ^ b[i])
ARITHMETIC(float)
ARITHMETIC(double)
WHOLE(uint8_t)
WHOLE(int8_t)
WHOLE(int16_t)
WHOLE(int32_t)
WHOLE(int64_t)

typedef union {
    float number;
    uint32_t bits;
} Float;

static void from_bfloat16(float *restrict to, const uint16_t *restrict from, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = (Float){.bits = (uint32_t)from[i] << 16}.number;
}

/* To the nearest; of two that are as near, to the even one. */
static void to_bfloat16(uint16_t *restrict to, const float *restrict from, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (Float){.number = from[i]}.bits, rounded = bits + 0x7fff + (bits >> 16 & 1);
        to[i] = (uint16_t)(from[i] != from[i] ? 0x7fc0 : rounded >> 16);
    }
}

/* Exponents of float16 are 112 less. Subnormal ones are taken as 2^-14 + x, less 2^-14. */
static void from_float16(float *restrict to, const uint16_t *restrict from, int64_t n) {
    const uint32_t smallest = 113u << 23;
    for (int64_t i = 0; i < n; i++) {
        uint32_t sign = (uint32_t)(from[i] & 0x8000) << 16, rest = (uint32_t)(from[i] & 0x7fff) << 13;
        uint32_t normal = rest + (112u << 23), special = rest | 0x7f800000;
        float below = (Float){.bits = rest + smallest}.number - (Float){.bits = smallest}.number;
        uint32_t subnormal = (Float){.number = below}.bits;
        uint32_t bits = rest < (1u << 23) ? subnormal : rest >= (31u << 23) ? special : normal;
        to[i] = (Float){.bits = bits | sign}.number;
    }
}

/* Rounds as to_bfloat16(). Of numbers below 2^-14, adding 0.5 leaves the bits that float16 has. */
static void to_float16(uint16_t *restrict to, const float *restrict from, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (Float){.number = from[i]}.bits, sign = bits & 0x80000000, rest = bits ^ sign;
        uint32_t normal = (rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13;
        float above = (Float){.bits = rest}.number + 0.5f;
        uint32_t subnormal = (Float){.number = above}.bits - (126u << 23);
        uint32_t special = rest > 0x7f800000 ? 0x7e00 : 0x7c00;
        uint32_t half = rest < (113u << 23) ? subnormal : rest >= (143u << 23) ? special : normal;
        to[i] = (uint16_t)(half | sign >> 16);
    }
}

/* A 16-bit type has how it becomes a float, and a float becomes it. */
typedef struct {
    void (*combine[8])(void *, const void *, int64_t);
    void (*divide)(void *, int64_t, int64_t);
    void (*widen)(float *, const uint16_t *, int64_t);
    void (*narrow)(uint16_t *, const float *, int64_t);
} Type;
#define OF_FLOATS(T) add_##T, add_##T, multiply_##T, minimum_##T, maximum_##T
#define FLOATS(T, ...) {{OF_FLOATS(T)}, divide_##T, __VA_ARGS__}
#define INTEGERS(T) {{OF_FLOATS(T), and_##T, or_##T, xor_##T}, divide_##T, NULL, NULL}
static const Type TYPES[] = {
    FLOATS(float, NULL, NULL), FLOATS(double, NULL, NULL),
    INTEGERS(uint8_t), INTEGERS(int8_t), INTEGERS(int16_t), INTEGERS(int32_t), INTEGERS(int64_t),
    FLOATS(float, from_bfloat16, to_bfloat16), FLOATS(float, from_float16, to_float16),
};

/* Combine n numbers of each rank; write them to `to` and, if it is given, to `also`. */
static void combine(const Member *m, const char *const *rows, int64_t n, char *to, char *also) {
    const Type *type = &TYPES[m->call.type];
    const int64_t size = m->call.size;
    double total[TILE]; /* the largest type, and aligned for every one */
    float widened[TILE];
    uint16_t narrowed[TILE];
    for (int64_t first = 0; first < n; first += TILE) {
        int64_t many = n - first < TILE ? n - first : TILE, at = first * size;
        const void *result = total;
        for (int r = 0; r < m->count; r++) {
            const void *row = rows[r] + at;
            if (type->widen) {
                type->widen(r ? widened : (float *)total, row, many);
                row = widened;
            } else if (!r) memcpy(total, row, many * size);
            if (r) type->combine[m->call.operation](total, row, many);
        }
        if (m->call.operation == MEAN) type->divide(total, m->count, many);
        if (type->narrow) {
            type->narrow(narrowed, (float *)total, many);
            result = narrowed;
        }
        memcpy(to + at, result, many * size);
        if (also) memcpy(also + at, result, many * size);
    }
}

/* --- Collectives: what a rank writes before a meeting, and reads after it. --- */

static char *row_of(const Member *m, int64_t rank) {
    return m->blocks + (m->step % 2 * m->count + rank) * m->row;
}

static int64_t first_of(const Member *m, int64_t rank) { return m->part * rank / m->count; }

/* Whether each rank combines a slice for all, so that there is a second meeting. */
static int is_sliced(const Member *m) {
    return m->call.kind <= REDUCE && m->part * m->call.size * m->count > SMALL;
}

static void write_part(const Member *m) {
    char *row = row_of(m, m->place), *mine = m->inputs[0] + m->start * m->call.size;
    int64_t bytes = m->part * m->call.size;
    if (m->call.kind == REDUCE_SCATTER) {
        for (int r = 0; r < m->count; r++)
            if (r != m->place) memcpy(row + r * bytes, m->inputs[r] + m->start * m->call.size, bytes);
    } else if (is_sliced(m)) { /* this rank's slice stays where it is */
        int64_t from = first_of(m, m->place) * m->call.size, to = first_of(m, m->place + 1) * m->call.size;
        memcpy(row, mine, from);
        memcpy(row + to, mine + to, bytes - to);
    } else if (m->call.kind != BROADCAST || m->call.root == m->place) memcpy(row, mine, bytes);
}

static void combine_part(const Member *m, int64_t offset_of_rows, int64_t from, int64_t n, const char *mine, char *to,
                         char *also) {
    const char *rows[m->count];
    for (int r = 0; r < m->count; r++)
        rows[r] = r == m->place ? mine : row_of(m, r) + offset_of_rows + from * m->call.size;
    combine(m, rows, n, to, also);
}

static void combine_slice(const Member *m) {
    int64_t from = first_of(m, m->place), at = from * m->call.size;
    char *mine = m->inputs[0] + m->start * m->call.size + at;
    int is_read = m->call.kind == ALL_REDUCE || m->call.root == m->place;
    combine_part(m, 0, from, first_of(m, m->place + 1) - from, mine, row_of(m, m->place) + at, is_read ? mine : NULL);
}

static void read_part(const Member *m) {
    int64_t at = m->start * m->call.size, bytes = m->part * m->call.size;
    char *mine = m->inputs[0] + at, *to = m->outputs[0] + at;
    if (m->call.kind == REDUCE && m->call.root != m->place) return;
    if (m->call.kind == REDUCE_SCATTER) {
        combine_part(m, m->place * bytes, 0, m->part, m->inputs[m->place] + at, to, NULL);
    } else if (m->call.kind == ALL_GATHER) {
        for (int r = 0; r < m->count; r++) memcpy(m->outputs[r] + at, row_of(m, r), bytes);
    } else if (m->call.kind == BROADCAST) {
        if (m->call.root != m->place) memcpy(to, row_of(m, m->call.root), bytes);
    } else if (is_sliced(m)) {
        for (int r = 0; r < m->count; r++) {
            int64_t from = first_of(m, r) * m->call.size, end = first_of(m, r + 1) * m->call.size;
            if (r != m->place) memcpy(mine + from, row_of(m, r) + from, end - from);
        }
    } else combine_part(m, 0, 0, m->part, mine, mine, NULL);
}

/* --- What Python calls. --- */

/* Write the next part and arrive at its meeting. */
static void begin_part(Member *m) {
    int64_t most = m->call.size ? m->row / m->call.size : 0;
    if (m->call.kind == REDUCE_SCATTER) most /= m->count;
    m->part = m->call.length - m->start < most ? m->call.length - m->start : most;
    if (m->part) write_part(m);
    arrive(m, ARRIVED);
}

/* Return the place of a rank that calls another collective, or DONE. */
static int differing(const Member *m) {
    for (int r = 0; r < m->count; r++)
        if (memcmp(&m->ranks[r].calls[m->step % 2], &m->call, sizeof m->call)) return r;
    return DONE;
}

/* Continue a collective that has returned WAITING. */
int proceed(Member *m) {
    for (;;) {
        if (!met(m)) return WAITING;
        if (m->phase == ARRIVED && m->start == 0) {
            int other = differing(m);
            if (other != DONE) {
                m->step++;
                m->phase = IDLE;
                return other;
            }
        }
        if (m->phase == ARRIVED && is_sliced(m)) {
            combine_slice(m);
            arrive(m, ARRIVED_AGAIN);
            continue;
        }
        if (m->part) read_part(m);
        m->step++;
        m->start += m->part;
        if (!m->part || m->start >= m->call.length) {
            m->phase = IDLE;
            return DONE;
        }
        begin_part(m);
    }
}

/* Run the collective m->call on what `inputs` and `outputs` point to. */
int begin(Member *m) {
    m->ranks[m->place].calls[m->step % 2] = m->call;
    m->start = 0;
    begin_part(m);
    return proceed(m);
}
