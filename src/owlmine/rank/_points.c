/* The training points nearest to sparse queries, by an inverted index: for each feature the points that have it.
 *
 *     cosine(q, x) = sum over the features f of q: q_f x_f      q and x scaled to length 1 by the caller
 *                                                               x_f = scale_f code_xf, a byte
 *
 * A query walks the lists of its features and adds to a float for each point; then the largest are picked, and the
 * floats are zero again. Lists ascend, so this is done for a block of points at a time, whose floats stay in the cache.
 * points.py has the same in NumPy, without blocks: a point's sum is added up in the same order.
 *
 * Long lists of light features are not walked. With R the lists left out, all of them of the set H of long lists,
 *
 *     cosine(q, x)  <=  sum over the lists walked: q_f x_f  +  |q_R| |x_H|
 *
 * so only points whose bound reaches the worst cosine that can still be named are computed in full, from their own
 * rows. The answer is the same to the bit: sums of whole rows have the same terms in the same order. |x_H| is known for
 * each point, in a byte, rounded up.
 *
 * Bounds: sizes of all buffers and the queries are checked before the first is answered; a list is checked when it is
 * walked, because of very many lists a call walks few. Rows are made by ``rows_of`` below, which checks every list.
 * Each query is answered by one thread: results do not depend on how many there are.
 */
#include "../_row_buffers.h" /* first, for Python.h */

#include "../_parallel.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define QUERY_GRAIN 1  /* queries that a thread takes at a time: one is work enough */
#define BLOCK 32768    /* points: 128 KiB of floats */
#define SWEPT 64        /* points of a block that are compared with the bound together, */
#define GROUP 32        /* and those that are looked at one by one if one is above it */
#define TOGETHER 8     /* entries of a list that one question of bounds is asked for */
#define SWEEP_SHARE 16 /* looking at all points of a block in order costs as much as coming back to one in so many */
#define MOST_THREADS 1024
#define SEEDS_PER_ANSWER 3 /* points computed first: the worst of the best bounds all others; they are the best by */
#define SEED_ENTRIES 2048  /* so many entries of the shortest lists */
#define LEFT_OUT 0.95f     /* what lists left out may add, relative to the bound: the more, the more rows to compute */
#define LONG_SHARE 32      /* long lists have more than one point in so many */
#define FEW_ENTRIES 4096   /* where all lists of a query have no more, leaving some out gains nothing */
#define MOST_MASS 255
#define LIGHTEST 1e-20 /* of q_f^2, for the cost of a list */
#define AFTER_ALL 1e30 /* more than any cost */
#define AHEAD 8            /* rows that are fetched while others are computed */

/* Versions of a function as FOR_EACH_CPU makes them, but no product is fused with a sum: that would round otherwise. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define FOR_EACH_CPU_UNFUSED __attribute__((target_clones("avx2", "default")))
#else
#define FOR_EACH_CPU_UNFUSED
#endif

typedef struct {
    const int64_t *offsets;
    const int32_t *ids;
    const float *values;
    int64_t num_rows, num_entries;
} Queries;

/* A list for each feature: the points that have it, with the scale of the list times a code. */
typedef struct {
    const int64_t *offsets;
    const int32_t *ids;
    const int8_t *codes;
    const float *scales;
    int64_t num_rows, num_entries;
} Lists;

typedef struct {
    float cosine;
    int32_t point;
} Found;

/* The points themselves: features[offsets[p]] to features[offsets[p + 1]], ascending, and the codes of point p. */
typedef struct {
    const int64_t *offsets; /* NULL where there are none: then every list is walked */
    const int32_t *features;
    const int8_t *codes;
    const uint8_t *masses; /* |x_H| of each, in parts of the longest row, MOST_MASS of them and rounded up */
    int64_t num_entries;
} Rows;

typedef struct {
    const int32_t *features;
    const float *values;
    int64_t count;
} Query;

/* A list of the query's, in the order in which they are left out: the last ones first. */
typedef struct {
    int64_t entry;
    double cost; /* its length for each unit of q_f^2; lists that are always walked come before all others */
    float rest;  /* |q_R| of this list and those behind it */
} Turn;

/* What a thread has to itself. */
typedef struct {
    int is_taken;   /* first: see take_desk */
    float *cosines; /* [BLOCK], zero between blocks */
    int32_t *close; /* [BLOCK + 1], the points of a block to compute in full */
    int64_t *places, *starts; /* [most entries of a query]: how far each list was walked, and how far before this block */
    Turn *turns;              /* [most entries of a query] */
    char *is_left_out;        /* [most entries of a query]; those from turns[num_walked] on */
    int64_t num_walked, num_short;
    float rounding; /* more than sums of the query can be off */
    float *weights; /* [F] q_f scale_f, zero between queries */
    Found *heap;    /* [n], the least at the top */
    int64_t count;
    float bound; /* n points have at least this cosine */
} Desk;

typedef struct {
    Queries queries;
    Lists lists;
    Rows rows;
    double longest; /* no row is longer */
    int64_t num_points, num_nearest;
    float *out_cosines; /* [N, n] */
    int64_t *out_points;
    Desk *desks;
    int num_desks, is_sound;
} Job;

/* ---- work space ---- */

static void close_desks(Job *job)
{
    for (int i = 0; job->desks != NULL && i < job->num_desks; i++) {
        free(job->desks[i].cosines);
        free(job->desks[i].close);
        free(job->desks[i].places);
        free(job->desks[i].turns);
        free(job->desks[i].starts);
        free(job->desks[i].is_left_out);
        free(job->desks[i].weights);
        free(job->desks[i].heap);
    }
    free(job->desks);
}

static int64_t num_seeds(const Job *job)
{
    int64_t most = SEEDS_PER_ANSWER * job->num_nearest;
    return most < BLOCK ? most : BLOCK;
}

static int64_t most_entries(const Queries *rows)
{
    int64_t most = 0;
    for (int64_t i = 0; i < rows->num_rows; i++) {
        int64_t count = rows->offsets[i + 1] - rows->offsets[i];
        most = count > most ? count : most;
    }
    return most;
}

/* Points that a heap has room for. */
static int64_t most_held(const Job *job)
{
    int64_t seeds = num_seeds(job);
    return seeds > job->num_nearest ? seeds : job->num_nearest;
}

static int open_desks(Job *job, int threads)
{
    int64_t most = most_entries(&job->queries);
    job->num_desks = threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : threads;
    job->desks = calloc((size_t)job->num_desks, sizeof(Desk));
    for (int i = 0; job->desks != NULL && i < job->num_desks; i++) {
        Desk *desk = job->desks + i;
        desk->cosines = calloc(BLOCK, sizeof(float));
        desk->close = malloc((BLOCK + 1) * sizeof(int32_t));
        desk->places = malloc(((size_t)most + 1) * sizeof(int64_t));
        desk->starts = malloc(((size_t)most + 1) * sizeof(int64_t));
        desk->turns = malloc(((size_t)most + 1) * sizeof(Turn));
        desk->is_left_out = malloc((size_t)most + 1);
        desk->weights = calloc((size_t)job->lists.num_rows + 1, sizeof(float));
        desk->heap = malloc(((size_t)most_held(job) + 1) * sizeof(Found));
        if (desk->cosines == NULL || desk->close == NULL || desk->places == NULL || desk->turns == NULL ||
            desk->is_left_out == NULL || desk->starts == NULL || desk->weights == NULL || desk->heap == NULL)
            return 0;
    }
    return job->desks != NULL;
}

/* ---- the largest ---- */

/* Whether ``left`` is named after ``right``: among equals the smaller point comes first. */
INLINED int is_behind(Found left, Found right)
{
    return left.cosine < right.cosine || (left.cosine == right.cosine && left.point > right.point);
}

INLINED void sink(Found *heap, int64_t count, Found given)
{
    int64_t place = 0;
    for (int64_t child = 1; child < count; child = 2 * place + 1) {
        if (child + 1 < count && is_behind(heap[child + 1], heap[child]))
            child++;
        if (!is_behind(heap[child], given))
            break;
        heap[place] = heap[child];
        place = child;
    }
    heap[place] = given;
}

INLINED void offer(Desk *desk, int64_t most, Found given)
{
    Found *heap = desk->heap;
    if (desk->count == most) {
        if (is_behind(heap[0], given))
            sink(heap, most, given);
        return;
    }
    int64_t place = desk->count++;
    for (; place > 0 && is_behind(given, heap[(place - 1) / 2]); place = (place - 1) / 2)
        heap[place] = heap[(place - 1) / 2];
    heap[place] = given;
}

/* What a cosine must be above, or as large as, to be named. */
INLINED float least(const Desk *desk, int64_t most)
{
    float own = desk->count == most ? desk->heap[0].cosine : 0;
    return own > desk->bound ? own : desk->bound;
}

INLINED void offer_if_near(Desk *desk, int64_t most, float cosine, int64_t point)
{
    Found given = {cosine, (int32_t)point};
    if (cosine > 0 && cosine >= least(desk, most))
        offer(desk, most, given);
}

/* ---- points in full ---- */

/* The features of a row ascend, as do those of a query: the same terms as in its lists, in the same order, and zeros. */
INLINED float cosine_of(Job *job, const float *weights, int64_t point)
{
    const Rows *rows = &job->rows;
    int64_t start = rows->offsets[point], end = rows->offsets[point + 1];
    float sum = 0;
    int is_sound = start >= 0 && end <= rows->num_entries;
    for (int64_t e = start; is_sound && e < end; e++) {
        is_sound = (uint64_t)rows->features[e] < (uint64_t)job->lists.num_rows;
        if (is_sound)
            sum += weights[rows->features[e]] * (float)rows->codes[e];
    }
    if (!is_sound)
        lower_flag(&job->is_sound);
    return sum;
}

/* Fetches what point i + AHEAD needs, and what that takes for the point behind it. */
INLINED void fetch_ahead(const Job *job, const int32_t *points, int64_t i, int64_t count)
{
    if (i + 2 * AHEAD < count)
        PREFETCH(job->rows.offsets + points[i + 2 * AHEAD]);
    if (i + AHEAD < count) {
        int64_t start = job->rows.offsets[points[i + AHEAD]];
        PREFETCH(job->rows.features + start);
        PREFETCH(job->rows.features + start + LINE);
        PREFETCH(job->rows.codes + start);
    }
}

static void compute_close(Job *job, Desk *desk, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        fetch_ahead(job, desk->close, i, count);
        offer_if_near(desk, job->num_nearest, cosine_of(job, desk->weights, desk->close[i]), desk->close[i]);
    }
}

/* ---- one block of points ---- */

INLINED int has_above(const float *cosines, int count, float cut)
{
    int above = 0;
    for (int i = 0; i < count; i++)
        above |= cosines[i] > cut;
    return above;
}

/* Which points are close: cosine + unit * mass > cut. */
typedef struct {
    const uint8_t *masses; /* of the points of the block */
    float unit, cut;
} Bounds;

INLINED int is_close(const float *cosines, const Bounds *bounds, int64_t i)
{
    return cosines[i] + bounds->unit * (float)bounds->masses[i] > bounds->cut;
}

INLINED int has_close(const float *cosines, const Bounds *bounds, int64_t start, int count)
{
    const float *own = cosines + start, unit = bounds->unit, cut = bounds->cut;
    const uint8_t *masses = bounds->masses + start;
    int some = 0;
    for (int i = 0; i < count; i++)
        some |= own[i] + unit * (float)masses[i] > cut;
    return some;
}

/* Lists the close points of a block in order; leaves zeros behind. */
FOR_EACH_CPU
static int64_t sweep_close(Desk *desk, int64_t first_point, int64_t width, Bounds bounds)
{
    float *cosines = desk->cosines;
    int64_t count = 0, start = 0;
    for (; start + SWEPT <= width; start += SWEPT) {
        int some = has_close(cosines, &bounds, start, SWEPT);
        for (int64_t group = start; some && group < start + SWEPT; group += GROUP) {
            if (!has_close(cosines, &bounds, group, GROUP))
                continue;
            for (int64_t i = group; i < group + GROUP; i++) {
                desk->close[count] = (int32_t)(first_point + i);
                count += is_close(cosines, &bounds, i);
            }
        }
        memset(cosines + start, 0, SWEPT * sizeof(float));
    }
    for (; start < width; start++) {
        desk->close[count] = (int32_t)(first_point + start);
        count += is_close(cosines, &bounds, start);
        cosines[start] = 0;
    }
    return count;
}

/* Offers the points of a block in order; leaves zeros behind. */
FOR_EACH_CPU
static void sweep(Desk *desk, int64_t first_point, int64_t width, int64_t most)
{
    for (int64_t start = 0; start < width; start += GROUP) {
        float *cosines = desk->cosines + start;
        int is_above = has_above(cosines, GROUP, (1 - FLT_EPSILON) * least(desk, most));
        for (int i = 0; is_above && i < GROUP; i++)
            offer_if_near(desk, most, cosines[i], first_point + start + i);
        memset(cosines, 0, GROUP * sizeof(float));
    }
}

/* The points of a block that a list has; leaves zeros behind, so that a point is not met twice. */
static void revisit(Desk *desk, const int32_t *points, int64_t count, int64_t first_point, int64_t most)
{
    float *cosines = desk->cosines;
    for (int64_t e = 0; e < count; e++) {
        float cosine = cosines[points[e] - first_point];
        cosines[points[e] - first_point] = 0;
        offer_if_near(desk, most, cosine, points[e]);
    }
}

/* The same: lists those that are close. */
static int64_t revisit_close(Desk *desk, const int32_t *points, int64_t num_points, int64_t first_point,
                             const Bounds *bounds, int64_t count)
{
    float *cosines = desk->cosines;
    for (int64_t e = 0; e < num_points; e++) {
        int64_t i = points[e] - first_point;
        desk->close[count] = points[e];
        count += is_close(cosines, bounds, i) && cosines[i] != 0;
        cosines[i] = 0;
    }
    return count;
}

/* Adds the part of a list whose points are of the block, from ``place`` on; returns where that ends. */
FOR_EACH_CPU_UNFUSED
static int64_t add_part(float *cosines, const Lists *lists, int64_t place, int64_t end, float weight,
                        uint32_t first_point, uint32_t width)
{
    for (; place + TOGETHER <= end; place += TOGETHER) {
        const int32_t *ids = lists->ids + place;
        const int8_t *codes = lists->codes + place;
        uint32_t points[TOGETHER];
        float products[TOGETHER];
        uint32_t largest = 0;
        for (int i = 0; i < TOGETHER; i++) {
            points[i] = (uint32_t)ids[i] - first_point;
            largest = points[i] > largest ? points[i] : largest;
            products[i] = weight * (float)codes[i];
        }
        if (largest >= width)
            break;
        for (int i = 0; i < TOGETHER; i++)
            cosines[points[i]] += products[i];
    }
    for (; place < end; place++) {
        uint32_t point = (uint32_t)lists->ids[place] - first_point;
        if (point >= width)
            break;
        cosines[point] += weight * (float)lists->codes[place];
    }
    return place;
}

/* Walks the lists that are not left out, in the order of the query's features, and notes where it began. */
static int64_t add_parts(const Job *job, Desk *desk, const Query *query, int64_t first_point, int64_t width)
{
    int64_t walked = 0;
    for (int64_t i = 0; i < query->count; i++) {
        desk->starts[i] = desk->places[i];
        if (desk->is_left_out[i])
            continue;
        int64_t end = job->lists.offsets[query->features[i] + 1];
        desk->places[i] = add_part(desk->cosines, &job->lists, desk->places[i], end,
                                   desk->weights[query->features[i]], (uint32_t)first_point, (uint32_t)width);
        walked += desk->places[i] - desk->starts[i];
    }
    return walked;
}

/* Leaves out further lists if the bound allows it. Returns |q_R| of those left out; 0 for none. */
static float leave_out(Desk *desk, const Job *job, const Query *query)
{
    float bound = least(desk, job->num_nearest) - desk->rounding, most = LEFT_OUT * (bound > 0 ? bound : 0);
    while (desk->num_walked > desk->num_short &&
           desk->turns[desk->num_walked - 1].rest * (float)job->longest < most)
        desk->is_left_out[desk->turns[--desk->num_walked].entry] = 1;
    return desk->num_walked < query->count ? desk->turns[desk->num_walked].rest : 0;
}

static void walk_block(Job *job, Desk *desk, const Query *query, int64_t first_point, int64_t width)
{
    float rest = leave_out(desk, job, query);
    Bounds bounds = {job->rows.masses + first_point, rest * (float)job->longest / MOST_MASS,
                     least(desk, job->num_nearest) - desk->rounding};
    /* Points that have no list walked may be close too, and only a sweep meets them. */
    int64_t unmet = bounds.unit * MOST_MASS >= bounds.cut, close = 0, is_swept;
    is_swept = add_parts(job, desk, query, first_point, width) > width / SWEEP_SHARE || (rest > 0 && unmet);
    if (is_swept && rest > 0)
        close = sweep_close(desk, first_point, width, bounds);
    else if (is_swept)
        sweep(desk, first_point, width, job->num_nearest);
    for (int64_t i = 0; !is_swept && i < query->count; i++) {
        const int32_t *points = job->lists.ids + desk->starts[i];
        int64_t count = desk->places[i] - desk->starts[i];
        if (rest > 0)
            close = revisit_close(desk, points, count, first_point, &bounds, close);
        else
            revisit(desk, points, count, first_point, job->num_nearest);
    }
    compute_close(job, desk, close);
}

/* ---- one query ---- */

static int64_t list_length(const Lists *lists, int64_t feature)
{
    return lists->offsets[feature + 1] - lists->offsets[feature];
}

static int is_long(const Job *job, int64_t feature)
{
    return list_length(&job->lists, feature) > job->num_points / LONG_SHARE;
}

static int list_is_sound(const Lists *lists, int64_t feature)
{
    int64_t start = lists->offsets[feature], end = lists->offsets[feature + 1];
    return start >= 0 && start <= end && end <= lists->num_entries;
}

static int is_dearer(const void *left, const void *right)
{
    double difference = ((const Turn *)left)->cost - ((const Turn *)right)->cost;
    return (difference > 0) - (difference < 0);
}

/* Puts the lists in the order in which they are left out, the last ones first: long ones of light features. */
static void take_turns(const Job *job, Desk *desk, const Query *query)
{
    double rest = 0;
    desk->num_short = query->count;
    desk->rounding = 0;
    for (int64_t i = 0; i < query->count; i++) {
        double value = query->values[i], length = (double)list_length(&job->lists, query->features[i]);
        int may_be_left_out = job->rows.offsets != NULL && is_long(job, query->features[i]);
        Turn turn = {i, length / (value * value + LIGHTEST) + (may_be_left_out ? AFTER_ALL : 0), 0};
        desk->turns[i] = turn;
        desk->num_short -= may_be_left_out;
        desk->is_left_out[i] = 0;
        desk->weights[query->features[i]] = query->values[i] * job->lists.scales[query->features[i]];
    }
    desk->num_walked = query->count;
    if (desk->num_short == query->count)
        return;
    qsort(desk->turns, (size_t)query->count, sizeof(Turn), is_dearer);
    for (int64_t turn = query->count - 1; turn >= 0; turn--) {
        double value = query->values[desk->turns[turn].entry];
        rest += value * value;
        desk->turns[turn].rest = (float)sqrt(rest);
    }
    desk->rounding = (float)((query->count + 8) * (double)FLT_EPSILON * job->longest * sqrt(rest));
}

/* Where a point's sum is kept while seeds are chosen: points that share a place only make worse seeds. */
INLINED uint32_t place_of(int32_t point)
{
    return (uint32_t)point % BLOCK;
}

/* Adds up the first entries of the lists that are walked longest; or offers their points by these sums, which become
 * zeros again. */
static void add_first_entries(Job *job, Desk *desk, const Query *query, int is_offered)
{
    const Lists *lists = &job->lists;
    int64_t left = SEED_ENTRIES, most = num_seeds(job);
    for (int64_t turn = 0; turn < query->count && left > 0; turn++) {
        int32_t feature = query->features[desk->turns[turn].entry];
        int64_t start = lists->offsets[feature], end = lists->offsets[feature + 1];
        end = end - start < left ? end : start + left;
        left -= end - start;
        for (int64_t e = start; e < end; e++) {
            float *sum = desk->cosines + place_of(lists->ids[e]);
            if (!is_offered) {
                *sum += desk->weights[feature] * (float)lists->codes[e];
                continue;
            }
            if ((uint64_t)lists->ids[e] < (uint64_t)job->num_points)
                offer_if_near(desk, most, *sum, lists->ids[e]);
            *sum = 0;
        }
    }
}

/* Computes some points in full: n of them bound the n nearest from below. Those that are best by their rarest features
 * make a good bound. */
static void find_bound(Job *job, Desk *desk, const Query *query)
{
    add_first_entries(job, desk, query, 0);
    add_first_entries(job, desk, query, 1);
    int64_t count = desk->count;
    desk->count = 0;
    for (int64_t i = 0; i < count; i++)
        desk->close[i] = desk->heap[i].point;
    for (int64_t i = 0; i < count; i++) {
        fetch_ahead(job, desk->close, i, count);
        offer_if_near(desk, job->num_nearest, cosine_of(job, desk->weights, desk->close[i]), desk->close[i]);
    }
    desk->bound = least(desk, job->num_nearest);
    desk->count = 0;
}

/* False where a list is not one of ascending points. */
static int walk(Job *job, Desk *desk, int64_t row)
{
    const Lists *lists = &job->lists;
    int64_t first = job->queries.offsets[row], num_entries = 0;
    Query query = {job->queries.ids + first, job->queries.values + first, job->queries.offsets[row + 1] - first};
    desk->count = 0;
    desk->bound = 0;
    for (int64_t i = 0; i < query.count; i++) {
        if (!list_is_sound(lists, query.features[i]))
            return 0;
        desk->places[i] = lists->offsets[query.features[i]];
        num_entries += list_length(lists, query.features[i]);
    }
    take_turns(job, desk, &query);
    if (desk->num_short < query.count && num_entries > FEW_ENTRIES)
        find_bound(job, desk, &query);
    for (int64_t point = 0; point < job->num_points; point += BLOCK)
        walk_block(job, desk, &query, point, job->num_points - point < BLOCK ? job->num_points - point : BLOCK);
    for (int64_t i = 0; i < query.count; i++) {
        desk->weights[query.features[i]] = 0;
        if (!desk->is_left_out[i] && desk->places[i] != lists->offsets[query.features[i] + 1])
            return 0;
    }
    return 1;
}

/* Highest first; places without a point of positive cosine have zeros. */
static void write_out(const Job *job, Desk *desk, int64_t query)
{
    float *cosines = job->out_cosines + query * job->num_nearest;
    int64_t *points = job->out_points + query * job->num_nearest;
    for (int64_t place = desk->count; place < job->num_nearest; place++) {
        cosines[place] = 0;
        points[place] = 0;
    }
    while (desk->count > 0) {
        int64_t place = --desk->count;
        cosines[place] = desk->heap[0].cosine;
        points[place] = desk->heap[0].point;
        sink(desk->heap, place, desk->heap[place]);
    }
}

static void answer_range(void *given, int64_t start, int64_t stop)
{
    Job *job = given;
    Desk *desk = take_desk(job->desks, job->num_desks, sizeof(Desk));
    for (int64_t query = start; query < stop; query++)
        if (walk(job, desk, query))
            write_out(job, desk, query);
        else
            lower_flag(&job->is_sound);
    leave_desk(desk);
}

/* ---- what Python gives ---- */

/* Fills ``rows``, and tells whether the sizes of its buffers fit each other. */
static int rows_fit(Queries *rows, const Py_buffer *offsets, const Py_buffer *ids, const Py_buffer *values)
{
    Queries given = {offsets->buf, ids->buf, values->buf, count_of(offsets, sizeof(int64_t)) - 1,
                  count_of(ids, sizeof(int32_t))};
    *rows = given;
    return given.num_rows >= 0 && holds(offsets, given.num_rows + 1, sizeof(int64_t)) &&
           holds(ids, given.num_entries, sizeof(int32_t)) && holds(values, given.num_entries, sizeof(float));
}

static int queries_are_sound(const Queries *queries, int64_t num_features)
{
    int all = 1;
    for (int64_t i = 0; i < queries->num_rows; i++)
        all &= queries->offsets[i] <= queries->offsets[i + 1];
    for (int64_t e = 0; e < queries->num_entries; e++)
        all &= queries->ids[e] >= 0 && queries->ids[e] < num_features;
    return all && ids_are_below(queries->offsets, queries->num_rows + 1, queries->num_entries + 1);
}

static int lists_fit(Lists *lists, const Py_buffer *offsets, const Py_buffer *ids, const Py_buffer *codes,
                     const Py_buffer *scales)
{
    Lists given = {offsets->buf, ids->buf, codes->buf, scales->buf, count_of(offsets, sizeof(int64_t)) - 1,
                   count_of(ids, sizeof(int32_t))};
    *lists = given;
    return given.num_rows >= 0 && holds(offsets, given.num_rows + 1, sizeof(int64_t)) &&
           holds(ids, given.num_entries, sizeof(int32_t)) && holds(codes, given.num_entries, 1) &&
           holds(scales, given.num_rows, sizeof(float));
}

static int points_fit(Rows *rows, const Py_buffer *offsets, const Py_buffer *features, const Py_buffer *codes,
                      const Py_buffer *masses, int64_t num_points)
{
    Rows given = {offsets->len ? offsets->buf : NULL, features->buf, codes->buf, masses->buf,
                  count_of(features, sizeof(int32_t))};
    *rows = given;
    return (offsets->len == 0 || (holds(offsets, num_points + 1, sizeof(int64_t)) && holds(masses, num_points, 1))) &&
           holds(features, given.num_entries, sizeof(int32_t)) && holds(codes, given.num_entries, 1);
}

/* The rows that have these lists, whose offsets ascend. False where a list is not one of ascending points. */
static int write_rows(const Lists *lists, int64_t num_points, int64_t *offsets, int32_t *features, int8_t *codes)
{
    memset(offsets, 0, ((size_t)num_points + 1) * sizeof(int64_t));
    for (int64_t e = 0; e < lists->num_entries; e++) {
        if ((uint64_t)lists->ids[e] >= (uint64_t)num_points)
            return 0;
        offsets[lists->ids[e] + 1]++;
    }
    for (int64_t point = 0; point < num_points; point++)
        offsets[point + 1] += offsets[point];
    for (int64_t feature = 0; feature < lists->num_rows; feature++)
        for (int64_t e = lists->offsets[feature]; e < lists->offsets[feature + 1]; e++) {
            int64_t place = offsets[lists->ids[e]]++;
            if (e > lists->offsets[feature] && lists->ids[e] <= lists->ids[e - 1])
                return 0;
            features[place] = (int32_t)feature;
            codes[place] = lists->codes[e];
        }
    for (int64_t point = num_points; point > 0; point--)
        offsets[point] = offsets[point - 1];
    offsets[0] = 0;
    return 1;
}

/* The squared lengths of a point: of all, and of its features with long lists. */
static void measure(const Job *job, int64_t point, double *all, double *of_long)
{
    const Rows *rows = &job->rows;
    *all = *of_long = 0;
    for (int64_t e = rows->offsets[point]; e < rows->offsets[point + 1]; e++) {
        double value = (double)job->lists.scales[rows->features[e]] * rows->codes[e];
        *all += value * value;
        *of_long += is_long(job, rows->features[e]) ? value * value : 0;
    }
}

/* Returns the length of the longest point. */
static double write_masses(const Job *job, uint8_t *masses)
{
    double longest = 0, all, of_long;
    for (int64_t point = 0; point < job->num_points; point++) {
        measure(job, point, &all, &of_long);
        longest = all > longest ? all : longest;
    }
    for (int64_t point = 0; point < job->num_points && longest > 0; point++) {
        measure(job, point, &all, &of_long);
        masses[point] = (uint8_t)ceil(MOST_MASS * sqrt(of_long / longest));
    }
    return sqrt(longest);
}

PyDoc_STRVAR(fill_rows_doc,
             "fill_rows(offsets, points, codes, scales, num_points, out_offsets, out_features, out_codes, out_masses)\n\n"
             "The points that have these lists: their features, ascending, and codes; and how long they are without\n"
             "the features of short lists. Returns the length of the longest.");

static PyObject *fill_rows(PyObject *module, PyObject *args)
{
    Py_buffer offsets, points, codes, scales, out_offsets, out_features, out_codes, out_masses;
    Py_buffer *const buffers[] = {&offsets,     &points,       &codes,     &scales,
                                  &out_offsets, &out_features, &out_codes, &out_masses};
    Py_ssize_t num_points;
    Job job = {0};
    Lists lists;
    double longest = 0;
    int is_sound;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*nw*w*w*w*", &offsets, &points, &codes, &scales, &num_points, &out_offsets,
                          &out_features, &out_codes, &out_masses))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    is_sound = lists_fit(&lists, &offsets, &points, &codes, &scales) && lists.num_rows <= INT32_MAX &&
               num_points >= 0 && num_points <= INT32_MAX && holds(&out_offsets, num_points + 1, sizeof(int64_t)) &&
               holds(&out_features, lists.num_entries, sizeof(int32_t)) && holds(&out_codes, lists.num_entries, 1) &&
               holds(&out_masses, num_points, 1) &&
               lists.offsets[0] == 0 && lists.offsets[lists.num_rows] == lists.num_entries;
    for (int64_t feature = 0; is_sound && feature < lists.num_rows; feature++)
        is_sound = lists.offsets[feature] <= lists.offsets[feature + 1];
    is_sound = is_sound && write_rows(&lists, num_points, out_offsets.buf, out_features.buf, out_codes.buf);
    job.lists = lists;
    job.num_points = num_points;
    if (is_sound && points_fit(&job.rows, &out_offsets, &out_features, &out_codes, &out_masses, num_points))
        longest = write_masses(&job, out_masses.buf);
    Py_END_ALLOW_THREADS
    release(buffers, 8);
    return is_sound ? PyFloat_FromDouble(longest) : refusal();
}

PyDoc_STRVAR(nearest_doc,
             "nearest(query_offsets, query_features, query_values, offsets, points, codes, scales, num_points,\n"
             "        num_nearest, out_cosines, out_points, threads[, row_offsets, row_features, row_codes, row_masses,\n"
             "        longest])\n\n"
             "For each query the num_nearest points with the highest positive sums of products, highest first and\n"
             "among equals the smaller point first; zeros behind them. Lists of points ascend. Rows and longest are\n"
             "those of fill_rows; without them every list is walked. Returns the number of queries.");

static PyObject *nearest(PyObject *module, PyObject *args)
{
    Py_buffer query_offsets, query_features, query_values, offsets, points, codes, scales, out_cosines, out_points;
    Py_buffer row_offsets = {0}, row_features = {0}, row_codes = {0}, row_masses = {0};
    Py_buffer *const buffers[] = {&query_offsets, &query_features, &query_values, &offsets,      &points,
                                  &codes,         &scales,         &out_cosines,  &out_points,   &row_offsets,
                                  &row_features,  &row_codes,      &row_masses};
    Py_ssize_t num_points, num_nearest;
    int threads, is_sound, has_memory = 1;
    int64_t num_out;
    Job job = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*nnw*w*i|y*y*y*y*d", &query_offsets, &query_features, &query_values,
                          &offsets, &points, &codes, &scales, &num_points, &num_nearest, &out_cosines, &out_points,
                          &threads, &row_offsets, &row_features, &row_codes, &row_masses, &job.longest))
        return NULL;
    job.num_points = num_points;
    job.num_nearest = num_nearest;
    job.out_cosines = out_cosines.buf;
    job.out_points = out_points.buf;
    Py_BEGIN_ALLOW_THREADS
    is_sound = rows_fit(&job.queries, &query_offsets, &query_features, &query_values) &&
               lists_fit(&job.lists, &offsets, &points, &codes, &scales) &&
               queries_are_sound(&job.queries, job.lists.num_rows) && num_points >= 0 && num_points <= INT32_MAX &&
               num_nearest >= 0 && num_nearest <= num_points && job.queries.num_rows <= INT32_MAX &&
               points_fit(&job.rows, &row_offsets, &row_features, &row_codes, &row_masses, num_points) && job.longest >= 0;
    num_out = is_sound ? job.queries.num_rows * num_nearest : 0; /* below 2^62 */
    is_sound = is_sound && num_out <= out_points.len && holds(&out_cosines, num_out, sizeof(float)) &&
               holds(&out_points, num_out, sizeof(int64_t));
    if (is_sound && num_nearest > 0) {
        job.is_sound = 1;
        has_memory = open_desks(&job, threads);
        if (has_memory)
            in_parallel(answer_range, &job, job.queries.num_rows, QUERY_GRAIN, job.num_desks);
        close_desks(&job);
        is_sound = job.is_sound;
    }
    Py_END_ALLOW_THREADS
    release(buffers, 13);
    if (!is_sound)
        return refusal();
    return has_memory ? PyLong_FromLongLong(job.queries.num_rows) : PyErr_NoMemory();
}

static PyMethodDef methods[] = {
    {"nearest", nearest, METH_VARARGS, nearest_doc},
    {"fill_rows", fill_rows, METH_VARARGS, fill_rows_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "owlmine.rank._points",
    .m_doc = "The training points nearest to sparse queries; see points.py.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__points(void) { return PyModuleDef_Init(&definition); }
