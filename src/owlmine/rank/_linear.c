/* One-vs-rest linear classifiers over sparse rows: learned by dual coordinate descent, and scored.
 *
 * A class learns from its own few points alone. With rows x extended by a constant 1, and targets y = 1 or -1:
 *     minimise |w|^2 / 2 + C sum max(0, 1 - y <w, x>)^p      p = 1: hinge, p = 2: squared hinge
 * by its dual, one point at a time, with w = sum alpha y x kept up to date; points that sit firmly at a bound are left
 * out until the others agree (Hsieh et al., ICML 2008). coordinate_descent.py has the same, line by line.
 *
 * Bounds: sizes of all buffers are checked against each other, and every id before the first row is read.
 * Each class is worked on by one thread: results do not depend on how many there are.
 */
#include "../_row_buffers.h" /* first, for Python.h */

#include "../_parallel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN 0x9E3779B97F4A7C15u
#define STILL 1e-12 /* a slope that is not worth a move */
#define WORD 64
#define RUN_GRAIN 4 /* classes that a thread takes at a time, when it scores */
#define MOST_THREADS 1024

typedef struct {
    const int64_t *offsets;
    const int32_t *features;
    const float *values;
    int64_t num_rows, num_entries, num_features;
} Rows;

/* ---- work space ---- */

/* What a thread has to itself. ``dense`` and ``touched`` are zero between classes. */
typedef struct {
    int is_taken; /* first: see take_desk */
    float *dense;      /* [F], and on to a whole word of bits */
    uint64_t *touched; /* [F / 64] bits */
    double *alphas;    /* [most pairs of a class] */
    int32_t *order;
} Desk;

typedef struct {
    Desk *desks;
    int count;
    int64_t num_words;
} Office;

static void close_office(Office *office)
{
    for (int i = 0; office->desks != NULL && i < office->count; i++) {
        free(office->desks[i].dense);
        free(office->desks[i].touched);
        free(office->desks[i].alphas);
        free(office->desks[i].order);
    }
    free(office->desks);
}

static int open_office(Office *office, int threads, int64_t num_features, int64_t num_pairs)
{
    office->count = threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : threads;
    office->num_words = num_features / WORD + 1;
    office->desks = calloc((size_t)office->count, sizeof(Desk));
    for (int i = 0; office->desks != NULL && i < office->count; i++) {
        Desk *desk = office->desks + i;
        desk->dense = calloc((size_t)office->num_words * WORD, sizeof(float));
        desk->touched = calloc((size_t)office->num_words, sizeof(uint64_t));
        desk->alphas = malloc(((size_t)num_pairs + 1) * sizeof(double));
        desk->order = malloc(((size_t)num_pairs + 1) * sizeof(int32_t));
        if (desk->dense == NULL || desk->touched == NULL || desk->alphas == NULL || desk->order == NULL)
            return 0;
    }
    return office->desks != NULL;
}

INLINED void touch(Desk *desk, int32_t feature)
{
    desk->touched[feature / WORD] |= (uint64_t)1 << (feature % WORD);
}

/* The place of the lowest bit of a word that is not 0. */
INLINED int lowest_bit(uint64_t bits)
{
#if defined(__GNUC__)
    return __builtin_ctzll(bits);
#else
    int place = 0;
    for (; !(bits & 1); bits >>= 1)
        place++;
    return place;
#endif
}

/* ---- random order ---- */

/* splitmix64 (Steele, Lea and Flood, 2014): every number stands for itself, so NumPy can draw many at once. */
INLINED uint64_t mixed(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

INLINED void shuffle(int32_t *order, int64_t count, uint64_t *state)
{
    for (int64_t s = 0; s < count; s++) {
        uint64_t draw = mixed(*state += GOLDEN) >> 32;
        int64_t other = s + (int64_t)((draw * (uint64_t)(count - s)) >> 32);
        int32_t moved = order[s];
        order[s] = order[other];
        order[other] = moved;
    }
}

/* ---- learning ---- */

typedef struct {
    Rows queries;
    const double *squares;      /* [N] |x|^2, with that of the constant */
    const int64_t *pair_starts; /* of the chunk's classes, and where the last one ends */
    const int32_t *points;
    const int8_t *targets;
    int64_t num_classes, first_class;
    double highest, ridge, tolerance; /* of alpha: its upper bound, and what the loss adds to the diagonal */
    float threshold;
    int max_passes;
    uint64_t seed;
    const int64_t *out_starts; /* room for each class */
    int32_t *out_features;
    float *out_weights, *biases;
    int64_t *out_counts;
    Office office;
} TrainJob;

/* One class on its way. */
typedef struct {
    const TrainJob *job;
    const int32_t *points;
    const int8_t *targets;
    int64_t count;
    double bias;
    Desk *desk;
} Learner;

INLINED void prefetch_point(const Rows *rows, int64_t row)
{
    int64_t start = rows->offsets[row], width = rows->offsets[row + 1] - start;
    prefetch_row((const float *)(rows->features + start), width);
    prefetch_row(rows->values + start, width);
}

/* <dense, row>. Products of float32 are exact in double, so with the order of adding the sum is fixed to the bit. */
INLINED double product(const Rows *rows, const float *dense, int64_t row)
{
    int64_t e = rows->offsets[row], end = rows->offsets[row + 1];
    const int32_t *features = rows->features;
    const float *values = rows->values;
    double sums[4] = {0};
    for (; e + 4 <= end; e += 4)
        for (int lane = 0; lane < 4; lane++)
            sums[lane] += (double)values[e + lane] * dense[features[e + lane]];
    for (; e < end; e++)
        sums[0] += (double)values[e] * dense[features[e]];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

INLINED void move_along(const Rows *rows, float *dense, int64_t row, float step)
{
    for (int64_t e = rows->offsets[row]; e < rows->offsets[row + 1]; e++)
        dense[rows->features[e]] += step * rows->values[e];
}

/* The best alpha of one point, given the others. */
INLINED void visit(Learner *learner, int32_t place, double slope)
{
    const TrainJob *job = learner->job;
    int64_t point = learner->points[place];
    double *alpha = learner->desk->alphas + place, before = *alpha;
    double wanted = before - slope / (job->squares[point] + job->ridge);
    *alpha = wanted < 0 ? 0 : wanted > job->highest ? job->highest : wanted;
    double step = (*alpha - before) * learner->targets[place];
    move_along(&job->queries, learner->desk->dense, point, (float)step);
    learner->bias += step;
}

INLINED double slope_at(const Learner *learner, int32_t place)
{
    const TrainJob *job = learner->job;
    double score = product(&job->queries, learner->desk->dense, learner->points[place]) + learner->bias;
    return learner->targets[place] * score - 1 + job->ridge * learner->desk->alphas[place];
}

/* Passes over the points in random order until the slopes that are not held back by a bound are within tolerance. */
INLINED void descend(Learner *learner, uint64_t state)
{
    const TrainJob *job = learner->job;
    double *alphas = learner->desk->alphas, above = INFINITY, below = -INFINITY;
    int32_t *order = learner->desk->order;
    int64_t active = learner->count;
    for (int32_t i = 0; i < learner->count; i++) {
        order[i] = i;
        alphas[i] = 0;
    }
    for (int pass = 0; pass < job->max_passes; pass++) {
        double largest = -INFINITY, smallest = INFINITY;
        shuffle(order, active, &state);
        for (int64_t s = 0; s < active; s++) {
            int32_t place = order[s];
            if (s + 1 < active)
                prefetch_point(&job->queries, learner->points[order[s + 1]]);
            double slope = slope_at(learner, place), free_slope = slope;
            int at_zero = alphas[place] == 0, at_highest = alphas[place] == job->highest;
            if ((at_zero && slope > above) || (at_highest && slope < below)) {
                order[s--] = order[--active];
                order[active] = place;
                continue;
            }
            if ((at_zero && slope > 0) || (at_highest && slope < 0))
                free_slope = 0;
            largest = free_slope > largest ? free_slope : largest;
            smallest = free_slope < smallest ? free_slope : smallest;
            if (fabs(free_slope) > STILL)
                visit(learner, place, slope);
        }
        if (largest - smallest <= job->tolerance) {
            if (active == learner->count)
                return;
            active = learner->count; /* those left out have their say before the end */
            above = INFINITY;
            below = -INFINITY;
            continue;
        }
        above = largest > 0 ? largest : INFINITY;
        below = smallest < 0 ? smallest : -INFINITY;
    }
}

/* Which features may have a weight. Where the points have more entries than there are features, all of them. */
INLINED void touch_features(const Learner *learner)
{
    const Rows *rows = &learner->job->queries;
    int64_t entries = 0;
    for (int64_t i = 0; i < learner->count; i++)
        entries += rows->offsets[learner->points[i] + 1] - rows->offsets[learner->points[i]];
    if (entries >= rows->num_features) {
        memset(learner->desk->touched, 0xFF, (size_t)learner->job->office.num_words * sizeof(uint64_t));
        return;
    }
    for (int64_t i = 0; i < learner->count; i++) {
        int64_t point = learner->points[i];
        for (int64_t e = rows->offsets[point]; e < rows->offsets[point + 1]; e++)
            touch(learner->desk, rows->features[e]);
    }
}

/* The weights that are large enough, by ascending feature; leaves zeros behind. */
INLINED int64_t write_weights(Learner *learner, int32_t *features, float *weights)
{
    float *dense = learner->desk->dense;
    int64_t count = 0;
    touch_features(learner);
    for (int64_t word = 0; word < learner->job->office.num_words; word++) {
        uint64_t bits = learner->desk->touched[word];
        learner->desk->touched[word] = 0;
        for (; bits != 0; bits &= bits - 1) {
            int64_t feature = word * WORD + lowest_bit(bits);
            float weight = dense[feature];
            dense[feature] = 0;
            if (weight != 0 && fabsf(weight) >= learner->job->threshold) {
                features[count] = (int32_t)feature;
                weights[count++] = weight;
            }
        }
    }
    return count;
}

static int has_both_targets(const Learner *learner)
{
    int seen = 0;
    for (int64_t i = 0; i < learner->count && seen != 3; i++)
        seen |= learner->targets[i] > 0 ? 1 : 2;
    return seen == 3;
}

static void train_range(void *given, int64_t start, int64_t stop)
{
    const TrainJob *job = given;
    Desk *desk = take_desk(job->office.desks, job->office.count, sizeof(Desk));
    for (int64_t c = start; c < stop; c++) {
        int64_t first = job->pair_starts[c];
        Learner learner = {job, job->points + first, job->targets + first, job->pair_starts[c + 1] - first, 0, desk};
        job->out_counts[c] = 0;
        job->biases[c] = 0;
        if (!has_both_targets(&learner))
            continue;
        descend(&learner, mixed(job->seed ^ mixed((uint64_t)(job->first_class + c))));
        job->out_counts[c] =
            write_weights(&learner, job->out_features + job->out_starts[c], job->out_weights + job->out_starts[c]);
        job->biases[c] = (float)learner.bias;
    }
    leave_desk(desk);
}

/* Moves what the classes wrote together, and tells how much it is. */
static int64_t close_ranks(const TrainJob *job)
{
    int64_t total = 0;
    for (int64_t c = 0; c < job->num_classes; c++) {
        size_t count = (size_t)job->out_counts[c];
        memmove(job->out_features + total, job->out_features + job->out_starts[c], count * sizeof(int32_t));
        memmove(job->out_weights + total, job->out_weights + job->out_starts[c], count * sizeof(float));
        total += job->out_counts[c];
    }
    return total;
}

/* ---- scoring ---- */

/* Class by class: its weights are spread out once for all queries whose shortlist has it, and a query has few entries. */
typedef struct {
    Rows queries, classes; /* classes: a row of weights each, whose values are bytes */
    const int8_t *codes;
    const float *scales, *biases;
    const int64_t *ids, *starts, *places; /* per run of equal ids: the class, where it begins, and places in [N, S] */
    int64_t num_runs, num_places, per_query;
    float *scores;
    int is_sound;
    Office office;
} ScoreJob;

static int narrow_ids_are_below(const int32_t *ids, int64_t count, int64_t bound)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = (uint32_t)ids[i] > largest ? (uint32_t)ids[i] : largest;
    return count == 0 || largest < bound;
}

/* Looked at when a class is scored: of very many classes, a call reads few. */
INLINED int class_is_sound(const Rows *classes, int64_t id)
{
    int64_t start = classes->offsets[id], end = classes->offsets[id + 1];
    return start >= 0 && start <= end && end <= classes->num_entries &&
           narrow_ids_are_below(classes->features + start, end - start, classes->num_features);
}

INLINED void score_run(const ScoreJob *job, int64_t run, float *dense)
{
    const Rows *classes = &job->classes;
    int64_t id = job->ids[run], start = classes->offsets[id], end = classes->offsets[id + 1];
    for (int64_t e = start; e < end; e++)
        dense[classes->features[e]] = job->scales[id] * (float)job->codes[e];
    for (int64_t i = job->starts[run]; i < job->starts[run + 1]; i++) {
        int64_t query = job->places[i] / job->per_query;
        if (i + 1 < job->starts[run + 1])
            prefetch_point(&job->queries, job->places[i + 1] / job->per_query);
        job->scores[job->places[i]] = (float)(product(&job->queries, dense, query) + job->biases[id]);
    }
    for (int64_t e = start; e < end; e++)
        dense[classes->features[e]] = 0;
}

static void score_range(void *given, int64_t start, int64_t stop)
{
    ScoreJob *job = given;
    Desk *desk = take_desk(job->office.desks, job->office.count, sizeof(Desk));
    for (int64_t run = start; run < stop; run++)
        if (class_is_sound(&job->classes, job->ids[run]))
            score_run(job, run, desk->dense);
        else
            lower_flag(&job->is_sound);
    leave_desk(desk);
}

/* ---- what Python gives ---- */

static int offsets_are_sound(const int64_t *offsets, int64_t count, int64_t end)
{
    int ascend = count > 0;
    for (int64_t i = 1; i < count; i++)
        ascend &= offsets[i - 1] <= offsets[i];
    return ascend && ids_are_below(offsets, count, end + 1);
}

/* Fills ``rows``, and tells whether the sizes of its buffers fit each other. */
static int rows_fit(Rows *rows, const Py_buffer *offsets, const Py_buffer *features, const Py_buffer *values,
                    int64_t num_features)
{
    Rows given = {offsets->buf, features->buf, values->buf, count_of(offsets, sizeof(int64_t)) - 1,
                  count_of(features, sizeof(int32_t)), num_features};
    *rows = given;
    return num_features >= 0 && num_features <= INT32_MAX && given.num_rows >= 0 &&
           holds(offsets, given.num_rows + 1, sizeof(int64_t)) &&
           holds(features, given.num_entries, sizeof(int32_t)) && holds(values, given.num_entries, sizeof(float));
}

/* Whether every row can be read. */
static int rows_are_sound(const Rows *rows)
{
    return offsets_are_sound(rows->offsets, rows->num_rows + 1, rows->num_entries) &&
           narrow_ids_are_below(rows->features, rows->num_entries, rows->num_features);
}

/* Whether each class has room for all features that its points have, or for all there are. */
static int room_is_enough(const TrainJob *job, int64_t room)
{
    if (!offsets_are_sound(job->out_starts, job->num_classes + 1, room))
        return 0;
    for (int64_t c = 0; c < job->num_classes; c++) {
        int64_t wanted = 0, most = job->queries.num_features;
        for (int64_t e = job->pair_starts[c]; e < job->pair_starts[c + 1] && wanted < most; e++)
            wanted += job->queries.offsets[job->points[e] + 1] - job->queries.offsets[job->points[e]];
        if (job->out_starts[c + 1] - job->out_starts[c] < (wanted < most ? wanted : most))
            return 0;
    }
    return 1;
}

static int runs_are_sound(const ScoreJob *job, const Py_buffer *ids, const Py_buffer *starts, const Py_buffer *places)
{
    return holds(ids, job->num_runs, sizeof(int64_t)) && holds(starts, job->num_runs + 1, sizeof(int64_t)) &&
           holds(places, job->num_places, sizeof(int64_t)) &&
           ids_are_below(job->ids, job->num_runs, job->classes.num_rows) &&
           offsets_are_sound(job->starts, job->num_runs + 1, job->num_places);
}

static int64_t most_pairs(const TrainJob *job)
{
    int64_t most = 0;
    for (int64_t c = 0; c < job->num_classes; c++) {
        int64_t count = job->pair_starts[c + 1] - job->pair_starts[c];
        most = count > most ? count : most;
    }
    return most;
}

static PyObject *closed(Py_buffer *const *buffers, int count, int is_sound, int has_memory, int64_t result)
{
    release(buffers, count);
    if (!is_sound)
        return refusal();
    return has_memory ? PyLong_FromLongLong(result) : PyErr_NoMemory();
}

PyDoc_STRVAR(train_doc,
             "train(offsets, features, values, num_features, squares, pair_starts, points, targets, first_class,\n"
             "      (highest, ridge, tolerance, threshold), max_passes, seed,\n"
             "      out_starts, out_features, out_weights, out_counts, biases, threads)\n\n"
             "Learns the classes first_class, first_class + 1, ...; their weights lie one after the other at the\n"
             "beginning of out_features and out_weights. Returns how many there are.");

static PyObject *train(PyObject *module, PyObject *args)
{
    Py_buffer offsets, features, values, squares, pair_starts, points, targets;
    Py_buffer out_starts, out_features, out_weights, out_counts, biases;
    Py_buffer *const buffers[] = {&offsets,    &features,     &values,      &squares,    &pair_starts, &points, &targets,
                                  &out_starts, &out_features, &out_weights, &out_counts, &biases};
    Py_ssize_t num_features, first_class;
    double threshold;
    unsigned long long seed;
    int threads, is_sound, has_memory = 1;
    int64_t total = 0;
    TrainJob job = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*ny*y*y*y*n(dddd)iKy*w*w*w*w*i", &offsets, &features, &values, &num_features,
                          &squares, &pair_starts, &points, &targets, &first_class, &job.highest, &job.ridge,
                          &job.tolerance, &threshold, &job.max_passes, &seed, &out_starts, &out_features, &out_weights,
                          &out_counts, &biases, &threads))
        return NULL;
    job.squares = squares.buf;
    job.pair_starts = pair_starts.buf;
    job.points = points.buf;
    job.targets = targets.buf;
    job.num_classes = count_of(&pair_starts, sizeof(int64_t)) - 1;
    job.first_class = first_class;
    job.threshold = (float)threshold;
    job.seed = seed;
    job.out_starts = out_starts.buf;
    job.out_features = out_features.buf;
    job.out_weights = out_weights.buf;
    job.out_counts = out_counts.buf;
    job.biases = biases.buf;
    int64_t num_pairs = count_of(&points, sizeof(int32_t)), room = count_of(&out_features, sizeof(int32_t));
    Py_BEGIN_ALLOW_THREADS
    is_sound = rows_fit(&job.queries, &offsets, &features, &values, num_features) && rows_are_sound(&job.queries) &&
               job.queries.num_rows <= INT32_MAX && holds(&squares, job.queries.num_rows, sizeof(double)) &&
               holds(&pair_starts, job.num_classes + 1, sizeof(int64_t)) &&
               holds(&points, num_pairs, sizeof(int32_t)) && holds(&targets, num_pairs, sizeof(int8_t)) &&
               holds(&out_starts, job.num_classes + 1, sizeof(int64_t)) &&
               holds(&out_features, room, sizeof(int32_t)) && holds(&out_weights, room, sizeof(float)) &&
               holds(&out_counts, job.num_classes, sizeof(int64_t)) &&
               holds(&biases, job.num_classes, sizeof(float)) &&
               offsets_are_sound(job.pair_starts, job.num_classes + 1, num_pairs) && most_pairs(&job) <= INT32_MAX &&
               narrow_ids_are_below(job.points + job.pair_starts[0],
                                    job.pair_starts[job.num_classes] - job.pair_starts[0], job.queries.num_rows) &&
               room_is_enough(&job, room);
    if (is_sound) {
        has_memory = open_office(&job.office, threads, num_features, most_pairs(&job));
        if (has_memory) {
            in_parallel(train_range, &job, job.num_classes, 1, job.office.count);
            total = close_ranks(&job);
        }
        close_office(&job.office);
    }
    Py_END_ALLOW_THREADS
    return closed(buffers, 12, is_sound, has_memory, total);
}

PyDoc_STRVAR(score_doc,
             "score(query_offsets, query_features, query_values, num_features, offsets, features, codes, scales, biases,\n"
             "      ids, starts, places, per_query, scores, threads)\n\n"
             "scores[p] = <query p / per_query, scale * codes of ids[r]> + its bias, for the places p from starts[r] to those\n"
             "of the next run. Returns the number of runs.");

static PyObject *score(PyObject *module, PyObject *args)
{
    Py_buffer query_offsets, query_features, query_values, offsets, features, codes, scales, biases;
    Py_buffer ids, starts, places, scores;
    Py_buffer *const buffers[] = {&query_offsets, &query_features, &query_values, &offsets, &features, &codes,
                                  &scales,        &biases,         &ids,          &starts,  &places,   &scores};
    Py_ssize_t num_features, per_query;
    int threads, is_sound, has_memory = 1;
    ScoreJob job = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*ny*y*y*y*y*y*y*y*nw*i", &query_offsets, &query_features, &query_values,
                          &num_features, &offsets, &features, &codes, &scales, &biases, &ids, &starts, &places,
                          &per_query, &scores, &threads))
        return NULL;
    Rows classes = {offsets.buf, features.buf, NULL, count_of(&offsets, sizeof(int64_t)) - 1,
                    count_of(&features, sizeof(int32_t)), num_features};
    job.classes = classes;
    job.codes = codes.buf;
    job.scales = scales.buf;
    job.biases = biases.buf;
    job.ids = ids.buf;
    job.starts = starts.buf;
    job.places = places.buf;
    job.num_runs = count_of(&ids, sizeof(int64_t));
    job.num_places = count_of(&places, sizeof(int64_t));
    job.per_query = per_query;
    job.scores = scores.buf;
    Py_BEGIN_ALLOW_THREADS
    is_sound = rows_fit(&job.queries, &query_offsets, &query_features, &query_values, num_features) &&
               rows_are_sound(&job.queries) && classes.num_rows >= 0 &&
               holds(&offsets, classes.num_rows + 1, sizeof(int64_t)) &&
               holds(&features, classes.num_entries, sizeof(int32_t)) && holds(&codes, classes.num_entries, 1) &&
               holds(&scales, classes.num_rows, sizeof(float)) &&
               holds(&biases, job.classes.num_rows, sizeof(float)) && runs_are_sound(&job, &ids, &starts, &places) &&
               per_query > 0 && per_query <= INT32_MAX && job.queries.num_rows <= INT32_MAX &&
               holds(&scores, job.queries.num_rows * per_query, sizeof(float)) &&
               ids_are_below(job.places, job.num_places, job.queries.num_rows * per_query);
    if (is_sound) {
        job.is_sound = 1;
        has_memory = open_office(&job.office, threads, num_features, 0);
        if (has_memory)
            in_parallel(score_range, &job, job.num_runs, RUN_GRAIN, job.office.count);
        close_office(&job.office);
        is_sound = job.is_sound;
    }
    Py_END_ALLOW_THREADS
    return closed(buffers, 12, is_sound, has_memory, job.num_runs);
}

static PyMethodDef methods[] = {
    {"train", train, METH_VARARGS, train_doc},
    {"score", score, METH_VARARGS, score_doc},
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
    .m_name = "owlmine.rank._linear",
    .m_doc = "Linear classifiers of a shortlist, learned and scored; see compiled_linear.py.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__linear(void) { return PyModuleDef_Init(&definition); }
