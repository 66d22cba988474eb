/* What the matrices of a layer are multiplied with: which share an input, and sums of products of the inputs. */
#ifndef MILKIT_MEASURE_INPUTS_H
#define MILKIT_MEASURE_INPUTS_H

#include "base/pool.h"
#include "reference/reference.h"

/* A distinct input of the layer. */
struct input {
    int64_t n;           /* numbers of a row */
    int64_t n_rows;      /* that were seen */
    int stage;           /* inputs of later stages depend on matrices of earlier ones */
    double *squares;     /* [n]: sums */
    double *sum, *cross; /* [n, n]: sums of products, NULL where there was no room; cross may be NULL */
    bool is_done;        /* its sums are not needed any more */
    float *rows;         /* kept ones, of all texts */
    int64_t n_kept, capacity_rows, n_compared; /* n_compared: of this text and those before */
    bool is_comparable; /* of all tokens, so that the same rows come with other numbers of the checkpoint */
};

/* A matrix of the layer, rows [first / columns ..] of a tensor. */
struct input_matrix {
    char *tensor;
    int64_t first, rows, columns;
    int input;
    bool is_owner; /* the first that the input was shown for */
};

enum input_task {
    INPUTS_NOTHING,
    INPUTS_KEEP,   /* keeps all rows for INPUTS_COMPARE */
    INPUTS_SQUARE, /* sums of squares */
    INPUTS_SUM,    /* and of products, where memory allows */
    INPUTS_COMPARE /* sums of products of inputs of one stage, and with their differences from those that were kept */
};

struct inputs {
    struct pool *pool;
    enum input_task task;
    int stage;          /* of INPUTS_COMPARE */
    uint64_t bytes_max; /* of sums; one input is always taken */
    struct input *list;
    int n, n_stages;
    struct input_matrix *matrices;
    int n_matrices;
    bool was_short;   /* of memory, in the last run: run again once the sums that are there are dropped */
    struct err error; /* of a call of inputs_show */
    /* private */
    int n_runs; /* over this layer */
    size_t capacity, matrices_capacity;
    uint64_t bytes;
    struct input_class *classes;
    int n_classes;
    size_t classes_capacity;
    int last_class;
    float *last; /* the rows that were shown last */
    int64_t last_n, last_columns, last_text, last_expert;
    int last_input; /* of which; -1: of none that is known */
};

void inputs_begin(struct inputs *s);                                  /* a layer; forgets the one before */
void inputs_start(struct inputs *s, enum input_task task, int stage); /* a run over the texts */
bool inputs_show(void *context, const struct reference_input *in);    /* context: a struct inputs */
/* Sums and kept rows go. */
void inputs_drop(struct input *input);
void inputs_fini(struct inputs *s);
/* The matrix that this element of a tensor is in; -1: none that was shown. */
int inputs_find(const struct inputs *s, const char *tensor, int64_t at);

#endif
