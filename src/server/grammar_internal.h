/* A compiled grammar. */
#ifndef MILKIT_SERVER_GRAMMAR_INTERNAL_H
#define MILKIT_SERVER_GRAMMAR_INTERNAL_H

#include <stdatomic.h>
#include "server/grammar.h"

/* Nodes of a graph; `next` is where it goes on, -1 behind the end of a rule. */
enum node_kind {
    NODE_CHARACTERS, /* one of ranges [first, first + n) */
    NODE_CALL,       /* rule `first` */
    NODE_CHOICE,     /* ways choices [first, first + n), all before next */
    NODE_REPEAT      /* what begins at node `first`, least .. most times */
};
struct grammar_node {
    enum node_kind kind;
    int next, first, n;
    bool is_negated;     /* CHARACTERS: any but these */
    int64_t least, most; /* REPEAT; most -1: no limit */
};
struct grammar_range {
    uint32_t low, high;
};
struct grammar_rule {
    char *name;
    int first; /* its node, -1: empty; -2: not defined */
    bool is_nullable;
    int visit; /* while it is checked */
};
struct grammar {
    atomic_int n_references;
    struct grammar_node *nodes;
    int n_nodes;
    size_t nodes_capacity;
    struct grammar_range *ranges;
    int n_ranges;
    size_t ranges_capacity;
    int *choices;
    int n_choices;
    size_t choices_capacity;
    struct grammar_rule *rules;
    int n_rules;
    size_t rules_capacity;
    int root;
};

#endif
