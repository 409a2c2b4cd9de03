/* The compiled reader of sparse text. It reads well-formed lines only. At the first line that it does not recognise, it
 * stops and returns the position; the plain engine, which defines the grammar, reads that line.
 *
 * Bounds: only lines that end with a newline are read here, so every loop over bytes meets the newline before the
 * end of the data, and no loop runs over a newline. Writes are checked against the sizes of the buffers given.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <float.h>
#include <stdint.h>
#include <stdlib.h>

typedef unsigned char byte;

typedef struct {
    int has_labels; /* a list of labels may open the line */
    int has_signs;  /* labels may carry a sign */
    int64_t feature_bound, label_lowest, label_bound;
} Rules;

/* The rows written so far, and space for more. The entries of the next row begin at offsets[rows]. */
typedef struct {
    int64_t *feature_offsets, *label_offsets, *labels;
    int32_t *feature_ids;
    float *values;
    int64_t row_room, feature_room, label_room;
    int64_t rows, crlf_lines;
} Output;

typedef struct {
    int64_t *ids;
    int64_t room;
} Scratch;

static inline int is_blank(byte c) { return c == ' ' || c == '\t'; }

static inline unsigned digit_of(byte c) { return (unsigned)c - '0'; } /* above 9 for anything but a digit */

/* At most ten digits, so that nothing overflows; NULL if there is no such run. */
static inline const byte *read_id(const byte *p, int64_t *id)
{
    const byte *start = p;
    uint64_t sum = 0;
    unsigned digit;
    while ((digit = digit_of(*p)) <= 9) {
        sum = sum * 10 + digit; /* unsigned: may wrap around for a long run, which is then rejected */
        p++;
    }
    if (p == start || p - start > 10)
        return NULL;
    *id = (int64_t)sum;
    return p;
}

/* ---- numbers ---- */

static const double POWERS_OF_TEN[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                       1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD == 0
#define MAX_POWER 22 /* 10^22 is the last power of ten that a double holds exactly */
#else
#define MAX_POWER 0 /* wider intermediate results would round twice: integers only, the plain engine reads the rest */
#endif
#define MAX_EXACT ((uint64_t)1 << 53)

/* Both operands are exact, so one multiplication or division rounds correctly. */
static inline double scaled(uint64_t mantissa, int power)
{
    return power < 0 ? (double)mantissa / POWERS_OF_TEN[-power] : (double)mantissa * POWERS_OF_TEN[power];
}

/* Numbers of many digits: the first 15 significant ones give a lower and an upper neighbour. Rounding never
 * reverses an order, so if both neighbours round to the same float, the number does too. 0 if they differ. */
static int read_by_neighbours(const byte *p, const byte *end, int power, float *value)
{
    uint64_t mantissa = 0;
    int kept = 0;
    int64_t dropped = 0, shifted;
    double low, high;
    for (; p < end; p++) {
        unsigned digit = digit_of(*p);
        if (digit > 9)
            continue; /* the point */
        if (kept == 15) {
            dropped++;
        } else {
            mantissa = mantissa * 10 + digit;
            kept += mantissa > 0;
        }
    }
    shifted = power + dropped;
    if (shifted < -MAX_POWER || shifted > MAX_POWER)
        return 0;
    low = scaled(mantissa, (int)shifted);
    high = scaled(mantissa + 1, (int)shifted);
    *value = (float)low;
    return *value == (float)high;
}

/* The float32 of the correctly rounded double, or NULL if only the plain engine can decide. All results here stay
 * below 2^53 * 10^22, which float32 can hold. */
static inline const byte *read_value(const byte *p, float *value)
{
    int negative = 0;
    uint64_t mantissa = 0;
    unsigned digit;
    const byte *start, *end, *point;
    int64_t digits, decimals = 0;
    int power = 0;
    float result;

    if (*p == '-' || *p == '+')
        negative = *p++ == '-';
    start = p;
    while ((digit = digit_of(*p)) <= 9) {
        mantissa = mantissa * 10 + digit;
        p++;
    }
    digits = p - start;
    if (*p == '.') {
        point = p++;
        while ((digit = digit_of(*p)) <= 9) {
            mantissa = mantissa * 10 + digit;
            p++;
        }
        decimals = p - point - 1;
        digits += decimals;
    }
    if (digits == 0 || digits > 1000)
        return NULL;
    end = p;
    if (*p == 'e' || *p == 'E') {
        int negative_power;
        const byte *power_start;
        p++;
        negative_power = *p == '-';
        if (*p == '-' || *p == '+')
            p++;
        power_start = p;
        while ((digit = digit_of(*p)) <= 9 && p - power_start < 4) {
            power = power * 10 + (int)digit;
            p++;
        }
        if (p == power_start)
            return NULL;
        if (negative_power)
            power = -power;
    }
    power -= (int)decimals;
    if (digits <= 19 && mantissa <= MAX_EXACT) { /* 19 digits never wrap */
        if (power < -MAX_POWER || power > MAX_POWER)
            return NULL;
        result = (float)scaled(mantissa, power);
    } else if (!read_by_neighbours(start, end, power, &result)) {
        return NULL;
    }
    *value = negative ? -result : result;
    return p;
}

/* ---- repeated ids ---- */

static int compare_ids(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static int64_t *scratch_of(Scratch *scratch, int64_t count)
{
    if (count > scratch->room) {
        int64_t *larger = NULL;
        if ((uint64_t)count <= SIZE_MAX / sizeof(int64_t))
            larger = realloc(scratch->ids, (size_t)count * sizeof(int64_t));
        if (larger == NULL)
            return NULL;
        scratch->ids = larger;
        scratch->room = count;
    }
    return scratch->ids;
}

static int all_differ(int64_t *ids, int64_t count)
{
    qsort(ids, (size_t)count, sizeof(int64_t), compare_ids);
    for (int64_t i = 1; i < count; i++)
        if (ids[i] == ids[i - 1])
            return 0;
    return 1;
}

static int features_differ(const int32_t *ids, int64_t count, Scratch *scratch)
{
    int64_t *copy = scratch_of(scratch, count);
    if (copy == NULL)
        return 0;
    for (int64_t i = 0; i < count; i++)
        copy[i] = ids[i];
    return all_differ(copy, count);
}

static int labels_differ(const int64_t *ids, int64_t count, Scratch *scratch)
{
    int64_t *copy = scratch_of(scratch, count);
    if (copy == NULL)
        return 0;
    for (int64_t i = 0; i < count; i++)
        copy[i] = ids[i];
    return all_differ(copy, count);
}

/* ---- lines ---- */

/* The list of labels at the start of a line. Returns the position of the features: the start of the line if its first
 * token is a feature. NULL for a line that is not recognised. */
static const byte *read_labels(const byte *line, const Rules *rules, Output *out, int64_t *count, Scratch *scratch)
{
    const byte *p = line;
    int64_t first = out->label_offsets[out->rows], next = first, label, previous = INT64_MIN;
    int increasing = 1;
    *count = 0;
    if (is_blank(*p) || *p == '\n' || *p == '\r')
        return p;
    for (;;) {
        int negative = 0;
        if (rules->has_signs && (*p == '-' || *p == '+'))
            negative = *p++ == '-';
        p = read_id(p, &label);
        if (p == NULL)
            return NULL;
        if (*p == ':')
            return line; /* not labels: the first token is a feature, or invalid */
        if (negative)
            label = -label;
        if (label < rules->label_lowest || label >= rules->label_bound || next >= out->label_room)
            return NULL;
        increasing &= label > previous;
        previous = label;
        out->labels[next++] = label;
        if (*p != ',')
            break;
        p++;
    }
    if (!is_blank(*p) && *p != '\n' && *p != '\r')
        return NULL;
    *count = next - first;
    if (!increasing && !labels_differ(out->labels + first, *count, scratch))
        return NULL;
    return p;
}

/* Reads one line into the next row. Returns the start of the next line, or NULL if the row is not kept. */
static const byte *read_line(const byte *p, const Rules *rules, Output *out, Scratch *scratch)
{
    int64_t first = out->feature_offsets[out->rows], next = first, label_count = 0, id, previous = -1;
    int increasing = 1, is_crlf;
    if (rules->has_labels) {
        p = read_labels(p, rules, out, &label_count, scratch);
        if (p == NULL)
            return NULL;
    }
    for (;;) {
        float value;
        while (is_blank(*p))
            p++;
        if (*p == '\n' || *p == '\r')
            break;
        p = read_id(p, &id);
        if (p == NULL || *p != ':' || id >= rules->feature_bound || next >= out->feature_room)
            return NULL;
        p = read_value(p + 1, &value);
        if (p == NULL || !(is_blank(*p) || *p == '\n' || *p == '\r'))
            return NULL;
        increasing &= id > previous;
        previous = id;
        out->feature_ids[next] = (int32_t)id;
        out->values[next] = value;
        next++;
    }
    is_crlf = *p == '\r';
    p += is_crlf;
    if (*p != '\n')
        return NULL;
    if (!increasing && !features_differ(out->feature_ids + first, next - first, scratch))
        return NULL;
    out->label_offsets[out->rows + 1] = out->label_offsets[out->rows] + label_count;
    out->feature_offsets[out->rows + 1] = next;
    out->rows++;
    out->crlf_lines += is_crlf;
    return p + 1;
}

/* Reads lines from start to stop while they are recognised. Returns the start of the first line that was not read. */
static Py_ssize_t read_lines(const byte *data, Py_ssize_t start, Py_ssize_t stop, const Rules *rules, Output *out)
{
    Scratch scratch = {NULL, 0};
    const byte *p = data + start, *end = data + stop;
    while (p < end && out->rows < out->row_room) {
        const byte *next = read_line(p, rules, out, &scratch);
        if (next == NULL)
            break;
        p = next;
    }
    free(scratch.ids);
    return p - data;
}

/* ---- the module ---- */

PyDoc_STRVAR(count_marks_doc, "count_marks(data) -> (newlines, colons, commas)");

static PyObject *count_marks(PyObject *module, PyObject *args)
{
    Py_buffer data;
    Py_ssize_t newlines = 0, colons = 0, commas = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*", &data))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t start = 0; start < data.len;) {
        /* Sums of at most 255 bytes fit a byte, which lets the compiler count many bytes per instruction. */
        const byte *chunk = (const byte *)data.buf + start;
        Py_ssize_t length = data.len - start < 255 ? data.len - start : 255;
        byte newline = 0, colon = 0, comma = 0;
        for (Py_ssize_t i = 0; i < length; i++) {
            newline = (byte)(newline + (chunk[i] == '\n'));
            colon = (byte)(colon + (chunk[i] == ':'));
            comma = (byte)(comma + (chunk[i] == ','));
        }
        newlines += newline;
        colons += colon;
        commas += comma;
        start += length;
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&data);
    return Py_BuildValue("nnn", newlines, colons, commas);
}

static int is_aligned(const Py_buffer *buffer, size_t item) { return (uintptr_t)buffer->buf % item == 0; }

/* The rows that the caller has already written must lie inside the buffers; the new ones follow them. */
static int output_is_sound(const Output *out)
{
    return out->rows >= 0 && out->rows <= out->row_room && out->feature_offsets[out->rows] >= 0 &&
           out->feature_offsets[out->rows] <= out->feature_room && out->label_offsets[out->rows] >= 0 &&
           out->label_offsets[out->rows] <= out->label_room;
}

PyDoc_STRVAR(
    parse_doc,
    "parse(data, start, stop, rules, rows, feature_offsets, feature_ids, values, label_offsets, labels)\n"
    "    -> (position, rows, crlf_lines)\n\n"
    "Reads the lines of data from start to stop, where a newline must come before stop, and appends them after the\n"
    "given number of rows; ends early at the first line that it does not recognise.\n"
    "rules: (has_labels, has_signs, feature_bound, label_lowest, label_bound).\n"
    "The offsets and labels are int64, feature_ids int32, values float32, all writable and contiguous.\n"
    "crlf_lines counts the lines of this call.");

static PyObject *parse(PyObject *module, PyObject *args)
{
    Py_buffer data, feature_offsets, feature_ids, values, label_offsets, labels;
    Py_ssize_t start, stop, rows, position = 0;
    long long feature_bound, label_lowest, label_bound;
    Rules rules;
    Output out = {0};
    int is_sound;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*nn(ppLLL)nw*w*w*w*w*", &data, &start, &stop, &rules.has_labels,
                          &rules.has_signs, &feature_bound, &label_lowest, &label_bound, &rows, &feature_offsets,
                          &feature_ids, &values, &label_offsets, &labels))
        return NULL;
    /* Feature ids are stored in 32 bits. */
    rules.feature_bound = feature_bound <= (int64_t)1 << 31 ? feature_bound : (int64_t)1 << 31;
    rules.label_lowest = label_lowest;
    rules.label_bound = label_bound;
    out.feature_offsets = feature_offsets.buf;
    out.label_offsets = label_offsets.buf;
    out.feature_ids = feature_ids.buf;
    out.values = values.buf;
    out.labels = labels.buf;
    out.rows = rows;
    out.row_room = (feature_offsets.len < label_offsets.len ? feature_offsets.len : label_offsets.len) /
                       (Py_ssize_t)sizeof(int64_t) - 1;
    out.feature_room = (feature_ids.len < values.len ? feature_ids.len : values.len) / (Py_ssize_t)sizeof(int32_t);
    out.label_room = labels.len / (Py_ssize_t)sizeof(int64_t);
    is_sound = start >= 0 && start <= stop && stop <= data.len &&
               (start == stop || ((const byte *)data.buf)[stop - 1] == '\n') &&
               is_aligned(&feature_offsets, sizeof(int64_t)) &&
               is_aligned(&label_offsets, sizeof(int64_t)) && is_aligned(&labels, sizeof(int64_t)) &&
               is_aligned(&feature_ids, sizeof(int32_t)) && is_aligned(&values, sizeof(float)) &&
               output_is_sound(&out);
    if (is_sound) {
        Py_BEGIN_ALLOW_THREADS
        position = read_lines(data.buf, start, stop, &rules, &out);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&feature_offsets);
    PyBuffer_Release(&feature_ids);
    PyBuffer_Release(&values);
    PyBuffer_Release(&label_offsets);
    PyBuffer_Release(&labels);
    if (!is_sound) {
        PyErr_SetString(PyExc_ValueError, "start, stop, rows or offsets do not fit the buffers given");
        return NULL;
    }
    return Py_BuildValue("nnn", position, (Py_ssize_t)out.rows, (Py_ssize_t)out.crlf_lines);
}

static PyMethodDef methods[] = {
    {"count_marks", count_marks, METH_VARARGS, count_marks_doc},
    {"parse", parse, METH_VARARGS, parse_doc},
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
    .m_name = "owlmine.data._sparse_text",
    .m_doc = "Fast reading of well-formed sparse text; see sparse_text.py.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__sparse_text(void) { return PyModuleDef_Init(&definition); }
