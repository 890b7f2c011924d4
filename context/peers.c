/*
 * The ranks that calls of MPI are for: those that their arguments name, those of requests that they
 * wait for, and the one in a status. Handles have the types of OpenMPI or of MPICH; with another MPI
 * nothing is known.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "context.h"

/* ---- the MPI library ---- */

enum mpi { UNSEEN, OTHER, OPENMPI, MPICH };

/* Functions of MPI take and store handles of 4 or 8 bytes; these types are right for both. */
static struct {
    enum mpi kind;
    /* MPI_COMM_WORLD, and OpenMPI's requests that are complete. */
    uint64_t world, empty, null;
    /* What programs pass to ignore a status, in Fortran. */
    uint64_t ignore, ignore_f08;
    int32_t (*initialized)(int32_t *is);
    int32_t (*is_inter)(uint64_t comm, int32_t *is);
    int32_t (*group)(uint64_t comm, uint64_t *group);
    int32_t (*remote_group)(uint64_t comm, uint64_t *group);
    int32_t (*size)(uint64_t group, int32_t *size);
    int32_t (*translate)(uint64_t from, int32_t n, const int32_t *ranks, uint64_t to, int32_t *out);
    int32_t (*free)(uint64_t *group);
    /* Of OpenMPI: a handle of Fortran as one of C. In MPICH they are equal. */
    uint64_t (*f2c)(int32_t comm);
} mpi;

static enum mpi see(uint64_t near)
{
    const uint64_t *ignore = context_symbol("MPI_F_STATUS_IGNORE", near);
    const uint64_t *ignore_f08 = context_symbol("MPI_F08_STATUS_IGNORE", near);
    mpi.ignore = ignore != NULL ? *ignore : 0;
    mpi.ignore_f08 = ignore_f08 != NULL ? *ignore_f08 : 0;
    mpi.initialized = context_symbol("PMPI_Initialized", near);
    mpi.is_inter = context_symbol("PMPI_Comm_test_inter", near);
    mpi.group = context_symbol("PMPI_Comm_group", near);
    mpi.remote_group = context_symbol("PMPI_Comm_remote_group", near);
    mpi.size = context_symbol("PMPI_Group_size", near);
    mpi.translate = context_symbol("PMPI_Group_translate_ranks", near);
    mpi.free = context_symbol("PMPI_Group_free", near);
    if (mpi.initialized == NULL || mpi.is_inter == NULL || mpi.group == NULL ||
        mpi.remote_group == NULL || mpi.size == NULL || mpi.translate == NULL || mpi.free == NULL)
        return OTHER;
    /* The standard's binary interface has other handles. */
    int32_t (*abi)(int32_t *, int32_t *) = context_symbol("PMPI_Abi_get_version", near);
    int32_t major = -1, minor = -1;
    if (abi != NULL && (abi(&major, &minor) != 0 || major >= 0))
        return OTHER;
    /* Names that each mpi.h gives to programs, so that each compatible library has them. */
    mpi.world = (uint64_t)context_symbol("ompi_mpi_comm_world", near);
    mpi.empty = (uint64_t)context_symbol("ompi_request_empty", near);
    mpi.null = (uint64_t)context_symbol("ompi_request_null", near);
    mpi.f2c = context_symbol("PMPI_Comm_f2c", near);
    if (mpi.world != 0)
        return mpi.f2c != NULL ? OPENMPI : OTHER;
    mpi.world = 0x44000000;
    return context_symbol("MPIR_Dup_fn", near) != NULL ? MPICH : OTHER;
}

static inline bool is_known(uint64_t near)
{
    enum mpi kind = __atomic_load_n(&mpi.kind, __ATOMIC_ACQUIRE);
    if (__builtin_expect(kind == UNSEEN, false)) {
        /* Threads that see it at the same time store the same. */
        kind = see(near);
        __atomic_store_n(&mpi.kind, kind, __ATOMIC_RELEASE);
    }
    return kind != OTHER;
}

/* MPI_ANY_SOURCE, the only negative rank that stands for one. */
static int32_t any_source(void)
{
    return mpi.kind == OPENMPI ? -1 : -2;
}

/* ---- arguments ---- */

static inline uint64_t argument(const struct call *call, uint32_t position)
{
    enum { REGISTERS = sizeof call->args / sizeof call->args[0] };
    return position <= REGISTERS ? call->args[position - 1] : call->stacked[position - REGISTERS - 1];
}

static inline int32_t integer(const struct call *call, uint32_t position, bool fortran)
{
    uint64_t value = argument(call, position);
    return fortran ? *(const int32_t *)value : (int32_t)value;
}

/* The communicator, as in C. */
static uint64_t communicator(const struct call *call, uint32_t position, bool fortran)
{
    if (!fortran && mpi.kind == OPENMPI)
        return argument(call, position);
    int32_t comm = integer(call, position, fortran);
    if (mpi.kind == MPICH)
        return (uint32_t)comm;
    return comm == 0 ? mpi.world : mpi.f2c(comm);
}

/* ---- ranks in MPI_COMM_WORLD ---- */

/* Ranks of the largest number; the 24 bits below a hash have one more than a rank. */
#define RANKS 0xffffff
/* Ranks of other communicators, with 40 bits of the hash of communicator and rank. A new rank
 * replaces the one in its place. */
#define TRANSLATED 1024
static uint64_t translated[TRANSLATED];
/* How many communicators were freed, whose handles may be those of others now. */
static uint64_t freed;

static __attribute__((noinline)) int32_t translate(uint64_t comm, int32_t rank)
{
    int32_t is = 0, size = 0, out = -1;
    uint64_t from = 0, to = 0;
    if (mpi.initialized(&is) != 0 || !is || mpi.is_inter(comm, &is) != 0)
        return -1;
    if ((is ? mpi.remote_group : mpi.group)(comm, &from) != 0 || mpi.group(mpi.world, &to) != 0)
        return -1;
    /* An error here could end the program. */
    if (mpi.size(from, &size) == 0 && rank < size)
        mpi.translate(from, 1, &rank, to, &out);
    mpi.free(&from);
    mpi.free(&to);
    return out;
}

/* The rank in MPI_COMM_WORLD; negative if it is not known. */
static int32_t in_world(uint64_t comm, int32_t rank)
{
    if (comm == mpi.world)
        return rank;
    uint64_t key = context_mix(comm + (__atomic_load_n(&freed, __ATOMIC_RELAXED) << 48));
    key = context_mix(key + (uint32_t)rank);
    uint64_t *slot = &translated[key % TRANSLATED];
    uint64_t known = __atomic_load_n(slot, __ATOMIC_RELAXED);
    if ((known ^ key) >> 24 == 0)
        return (int32_t)(known & RANKS) - 1;
    int32_t world = translate(comm, rank);
    if (world < 0 || world >= RANKS)
        world = -1;
    __atomic_store_n(slot, (key & ~(uint64_t)RANKS) | (uint32_t)(world + 1), __ATOMIC_RELAXED);
    return world;
}

/* ---- sets of ranks ---- */

/* Ranks in their order, without duplicates. */
struct peers {
    int32_t ranks[MOST_PEERS];
    uint32_t count;
    /* There are others, or too many. */
    bool unknown;
};

static void add(struct peers *peers, int32_t rank)
{
    uint32_t at = peers->count;
    while (at > 0 && peers->ranks[at - 1] > rank)
        at--;
    if (at > 0 && peers->ranks[at - 1] == rank)
        return;
    peers->unknown |= rank < 0 || peers->count == MOST_PEERS;
    if (peers->unknown)
        return;
    for (uint32_t i = peers->count; i > at; i--)
        peers->ranks[i] = peers->ranks[i - 1];
    peers->ranks[at] = rank;
    peers->count++;
}

/* Adds the ranks that arguments name. Returns whether there is another one that they do not name. */
static bool add_named(struct peers *peers, const struct call *call, const struct roles *roles,
                      bool fortran)
{
    if (roles->comm == 0)
        return false;
    uint64_t comm = communicator(call, roles->comm, fortran);
    int32_t to = roles->to != 0 ? integer(call, roles->to, fortran) : -1;
    int32_t from = roles->from != 0 ? integer(call, roles->from, fortran) : -1;
    if (to >= 0)
        add(peers, in_world(comm, to));
    if (from >= 0)
        add(peers, in_world(comm, from));
    return roles->from != 0 && from == any_source();
}

/* ---- requests ---- */

/*
 * The ranks of requests that were not replaced by newer ones. Values: one more than each of two ranks
 * in 24 bits; or the communicator of a receive from any rank. The other word is the key, combined
 * with the value: words of two stores do not match.
 */
#define REQUESTS 8192
#define PROBES 8
static struct {
    uint64_t check, value;
} requests[REQUESTS];
#define IS_KNOWN (1ull << 62)
#define IS_ANY (1ull << 63)

/* Handles of Fortran and of OpenMPI in C are different. */
static uint64_t key_of(uint64_t handle, bool fortran)
{
    return context_mix(handle ^ (uint64_t)fortran << 63) | 1;
}

static uint64_t request_at(uint64_t at, uint64_t index, bool fortran)
{
    if (fortran || mpi.kind == MPICH)
        return ((const uint32_t *)at)[index];
    return ((const uint64_t *)at)[index];
}

/* Whether nothing is left to wait for. Libraries have a common request for that. */
static bool is_complete(uint64_t handle, bool fortran)
{
    if (mpi.kind == MPICH)
        /* The two kinds of handles that are no objects of their own. */
        return handle >> 30 < 2;
    return fortran ? handle <= 1 : handle == mpi.empty || handle == mpi.null;
}

static uint64_t look_up(uint64_t key)
{
    for (uint32_t i = 0; i < PROBES; i++) {
        uint64_t at = (key + i) % REQUESTS;
        uint64_t value = __atomic_load_n(&requests[at].value, __ATOMIC_RELAXED);
        if ((__atomic_load_n(&requests[at].check, __ATOMIC_RELAXED) ^ value) == key)
            return value;
    }
    return 0;
}

/* Keeps the value in the place that the key has, in one that is free, or instead of another. */
static void keep(uint64_t key, uint64_t value)
{
    uint64_t free = key % REQUESTS;
    for (uint32_t i = PROBES; i-- > 0;) {
        uint64_t at = (key + i) % REQUESTS;
        uint64_t there = __atomic_load_n(&requests[at].value, __ATOMIC_RELAXED);
        uint64_t whose = __atomic_load_n(&requests[at].check, __ATOMIC_RELAXED) ^ there;
        if (whose == 0 || whose == key)
            free = at;
        if (whose == key)
            break;
    }
    __atomic_store_n(&requests[free].value, value, __ATOMIC_RELAXED);
    __atomic_store_n(&requests[free].check, key ^ value, __ATOMIC_RELAXED);
}

/* Notes the ranks of a new request; those of an earlier one with the same handle are forgotten. */
static void note_request(const struct call *call, const struct roles *roles, bool fortran)
{
    uint64_t handle = request_at(argument(call, roles->made), 0, fortran);
    if (is_complete(handle, fortran))
        return;
    uint64_t key = key_of(handle, fortran), value = 0;
    struct peers peers = {0};
    bool any = add_named(&peers, call, roles, fortran);
    if (roles->comm != 0 && !any && !peers.unknown) {
        value = IS_KNOWN;
        for (uint32_t i = 0; i < peers.count; i++)
            value |= (uint64_t)(uint32_t)(peers.ranks[i] + 1) << (24 * i);
    } else if (any && peers.count == 0)
        value = IS_ANY | communicator(call, roles->comm, fortran);
    keep(key, value);
}

/* Larger numbers of requests are not looked at. */
#define MOST_REQUESTS 4096

/* Adds the ranks of the requests that a call waits for. Returns the communicator of the only one if
 * that is a receive from any rank, else 0. */
static uint64_t add_requests(struct peers *peers, const struct call *call,
                             const struct roles *roles, bool fortran)
{
    int32_t count = roles->count != 0 ? integer(call, roles->count, fortran) : 1;
    uint64_t at = argument(call, roles->requests);
    peers->unknown |= count > MOST_REQUESTS;
    for (int32_t i = 0; i < count && !peers->unknown; i++) {
        uint64_t handle = request_at(at, (uint32_t)i, fortran);
        if (is_complete(handle, fortran))
            continue;
        uint64_t value = look_up(key_of(handle, fortran));
        if (value & IS_ANY && roles->status != 0)
            return value & ~IS_ANY;
        peers->unknown |= !(value & IS_KNOWN);
        for (uint64_t ranks = value & ~(IS_KNOWN | IS_ANY); ranks != 0; ranks >>= 24)
            add(peers, (int32_t)(ranks & RANKS) - 1);
    }
    peers->unknown |= roles->some && peers->count > 1;
    return 0;
}

/* ---- calls ---- */

static uint32_t number_of(uint32_t region, const struct peers *peers)
{
    if (peers->unknown || peers->count == 0)
        return 0;
    return context_number_of_peers(region, peers->ranks, peers->count);
}

void context_peers_before(struct call *call, const struct roles *roles, bool fortran, uint64_t next)
{
    uint32_t region = (uint16_t)spile_word;
    if (!is_known(next))
        return;
    call->region = region;
    call->peers = 0;
    call->comm = 0;
    struct peers peers;
    peers.count = 0;
    peers.unknown = false;
    if (roles->requests != 0)
        call->comm = add_requests(&peers, call, roles, fortran);
    else if (add_named(&peers, call, roles, fortran) && roles->status != 0)
        call->comm = communicator(call, roles->comm, fortran);
    else if (roles->comm == 0)
        return;
    if (call->comm == 0)
        call->peers = number_of(region, &peers);
    if (call->peers != 0 || call->comm != 0)
        call->ticks = context_begin_peers(region, call->peers);
    else if (roles->made == 0)
        call->region = 0;
}

/* The rank that a status tells. */
static void add_source(struct peers *peers, const struct call *call, const struct roles *roles)
{
    uint64_t status = argument(call, roles->status);
    if (status <= 1 || status == mpi.ignore || status == mpi.ignore_f08) {
        peers->unknown = true;
        return;
    }
    int32_t source = ((const int32_t *)status)[mpi.kind == OPENMPI ? 0 : 2];
    if (source >= 0)
        add(peers, in_world(call->comm, source));
}

void context_peers_after(struct call *call, const struct roles *roles, bool fortran, bool failed)
{
    if (roles->frees)
        __atomic_fetch_add(&freed, 1, __ATOMIC_RELAXED);
    if (call->region == 0)
        return;
    if (call->comm != 0 && !failed) {
        struct peers peers = {0};
        add_named(&peers, call, roles, fortran);
        add_source(&peers, call, roles);
        call->peers = number_of(call->region, &peers);
    }
    if (call->peers != 0)
        context_end_peers(call->region, call->peers, call->ticks);
    if (roles->made != 0 && !failed)
        note_request(call, roles, fortran);
}
