/* Inside the template engine: values, syntax tree, and what the jinja_*.c files need of each other. Nobody else
 * includes this.
 *
 * One struct jinja is one run, of the parser or of the evaluator. Everything that it makes lies in its arena or in its
 * builders, and whoever finds an error leaves by jinja_fail, which jumps back to the entry point; the
 * entry point frees all of it. So nothing in between holds resources, and no call has an error path to check.
 */
#ifndef MILKIT_JINJA_JINJA_INTERNAL_H
#define MILKIT_JINJA_JINJA_INTERNAL_H

#include <setjmp.h>
#include <string.h>
#include "jinja/jinja.h"
#include "base/utf8.h"

#define JINJA_MAX_CHAIN 500   /* operators in a row, which nest in the tree */
#define JINJA_MAX_FRAMES 2000 /* evaluator calls inside each other, which bounds the C stack */
#define JINJA_MAX_CALLS 200   /* macros and recursive loops inside each other */
#define JINJA_MAX_DATA_DEPTH 200
#define JINJA_MAX_RANGE 100000

/* --- strings ------------------------------------------------------------------------------------------------------ */

struct mark {
    uint32_t end; /* bytes from the end of the mark before up to here */
    bool is_user;
};

/* Immutable UTF-8; p may lie inside another string. */
struct text {
    const char *p;
    uint32_t n, n_chars;
    const struct mark *marks; /* [n_marks]; NULL: all bytes are as is_user says */
    uint32_t n_marks;
    bool is_user;
    bool is_markup; /* came from `safe` or `escape`: + escapes what is added to it */
};

/* --- values ------------------------------------------------------------------------------------------------------- */

enum value_type {
    VALUE_MISSING, /* an argument that was not given; no template sees it */
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_BIG, /* an integer that 64 bits do not hold; Python knows no difference, so neither do templates */
    VALUE_DOUBLE,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_VIEW, /* keys, values, items of a dict: no subscript */
    VALUE_RANGE,
    VALUE_SLICE,
    VALUE_DICT,
    VALUE_ITERATOR, /* what Python's generators are: true, without length, empty after one walk */
    VALUE_NAMESPACE,
    VALUE_CYCLER,
    VALUE_JOINER,
    VALUE_MACRO,
    VALUE_LOOP,
    VALUE_FUNCTION
};

struct value {
    enum value_type type;
    union {
        bool boolean;
        int64_t integer;
        double number;
        const struct big *big;
        const struct text *text;
        struct list *list;
        struct range *range;
        struct slice *slice;
        struct dict *dict; /* DICT, NAMESPACE */
        struct iterator *iterator;
        struct cycler *cycler;
        struct joiner *joiner;
        struct macro *macro;
        struct loop *loop;
        struct function *function;
        const struct undefined *undefined;
        const void *address;
    };
};

struct list { /* LIST, TUPLE, VIEW */
    struct value *items;
    size_t n, capacity;
    const char *view_name; /* "dict_items" */
    bool is_group;         /* a tuple that groupby made: has .grouper and .list */
};

struct big {
    const char *digits; /* decimal, without zeros in front, a 0 byte behind them */
    size_t n;
    bool is_negative;
};

struct range {
    int64_t start, step;
    size_t n;
    int64_t stop; /* as written, for printing and equality */
};

struct slice {
    struct value start, stop, step;
};

struct dict_entry {
    struct value key, value;
    uint64_t hash;
};

/* In order of insertion. */
struct dict {
    struct dict_entry *entries;
    size_t n, capacity;
    uint32_t
        *index; /* [n_index] entry + 1, open addressing, a power of two; NULL while there are few entries */
    size_t n_index;
};

struct iterator {
    struct list *list;
    size_t at;
    const char *name; /* "generator" */
};

struct cycler {
    struct list *items;
    size_t at;
};

struct joiner {
    struct value separator;
    bool used;
};

struct undefined {
    const char *hint;    /* the whole message; else made from: */
    struct value object; /* MISSING: a name that no scope has */
    struct value name;
};

struct jinja;
struct call_args {
    struct value *positional;
    size_t n;
    const struct text **names;
    struct value *named; /* [n_named] */
    size_t n_named;
};
typedef struct value (*builtin_fn)(struct jinja *j, struct value self, const struct call_args *a);
struct builtin {
    const char *name;
    builtin_fn fn;
};
struct function {
    const struct builtin *builtin;
    struct value self;
};

/* --- syntax tree -------------------------------------------------------------------------------------------------- */

enum node_kind {
    /* expressions */
    NODE_CONSTANT,
    NODE_NAME,
    NODE_LIST,
    NODE_TUPLE,
    NODE_DICT, /* list: key, value, key, value */
    NODE_NEGATE,
    NODE_PLUS,
    NODE_NOT,
    NODE_AND,
    NODE_OR,
    NODE_BINARY,
    NODE_CONCAT,
    NODE_COMPARE,   /* a, then operands in list, their operators in operators */
    NODE_CONDITION, /* a if b else c (may be NULL) */
    NODE_ATTRIBUTE,
    NODE_ITEM,
    NODE_SLICE,
    NODE_CALL,
    NODE_FILTER, /* a is NULL in a filter block */
    NODE_TEST,
    NODE_NAMESPACE_TARGET,
    /* statements */
    NODE_TEXT,
    NODE_OUTPUT,
    NODE_FOR,       /* a: target, b: iterable, c: condition; body, other; is_recursive */
    NODE_IF,        /* list: tests; branches: their bodies; other */
    NODE_SET,       /* a: target, b: value */
    NODE_SET_BLOCK, /* a: target, b: filter */
    NODE_MACRO,
    NODE_CALL_BLOCK, /* a: call */
    NODE_FILTER_BLOCK,
    NODE_WITH, /* list: target, value, target, value */
    NODE_SCOPE,
    NODE_BREAK,
    NODE_CONTINUE
};

enum operator{
    OPERATOR_ADD,
    OPERATOR_SUBTRACT,
    OPERATOR_MULTIPLY,
    OPERATOR_DIVIDE,
    OPERATOR_FLOOR_DIVIDE,
    OPERATOR_MODULO,
    OPERATOR_POWER,
    OPERATOR_EQUAL,
    OPERATOR_NOT_EQUAL,
    OPERATOR_LESS,
    OPERATOR_LESS_EQUAL,
    OPERATOR_GREATER,
    OPERATOR_GREATER_EQUAL,
    OPERATOR_IN,
    OPERATOR_NOT_IN
};

struct node_list {
    struct node **p;
    size_t n, capacity;
};

struct name_list {
    const struct text **p;
    size_t n;
};

struct argument_nodes {
    struct node_list positional;
    const struct text **names; /* [named.n] */
    struct node_list named;
    struct node *more_positional, *more_named; /* *args, **kwargs, may be NULL */
};

struct macro_definition {
    const struct text *name;
    const struct text **parameters; /* [n_parameters] */
    struct node_list defaults;      /* of the last ones */
    size_t n_parameters;
    struct node_list body;
    struct name_list hidden; /* see jinja_names.c; also below */
    bool uses_varargs, uses_kwargs, uses_caller, has_caller_parameter;
};

struct node {
    enum node_kind kind;
    enum operator op;
    int line, column;
    int depth; /* of the tree below */
    bool is_recursive;
    struct node *a, *b, *c;
    struct node_list list, body, other;
    struct name_list hidden, hidden_other; /* of body and other */
    struct node_list *branches;            /* [list.n] */
    const enum operator* operators;        /* [list.n] */
    const struct text *name;               /* interned: equal names are one pointer */
    struct value constant;
    const struct builtin *builtin; /* filter or test; NULL: an unknown one, an error only when it is used */
    struct argument_nodes *arguments;
    struct macro_definition *macro;
};

struct jinja_template {
    struct arena *arena;
    struct table *names; /* every name and attribute of the text, to const struct text * */
    char *where;
    struct node_list body;
    struct name_list hidden;
};

/* --- a run -------------------------------------------------------------------------------------------------------- */

struct builder { /* text under construction, on the heap, owned by the run */
    char *p;
    size_t n, capacity;
    struct mark *marks;
    size_t n_marks, marks_capacity;
    struct builder *below;
};

struct scope_entry {
    const struct text *name;
    struct value value; /* MISSING: undefined, whatever the scopes around say */
};
struct scope {
    struct scope *parent;
    struct scope_entry *entries;
    size_t n, capacity;
    bool is_captured; /* a macro may still see it */
};

struct macro {
    const struct macro_definition *definition;
    struct scope *scope;
};

struct jinja {
    jmp_buf leave;
    struct err *e;
    const char *where;
    int line, column;               /* what is worked on */
    struct arena *arena, *scratch;  /* scratch: only while parsing */
    const struct jinja_template *t; /* NULL while parsing */
    uint64_t seed;                  /* of dict hashes, so that nobody can prepare collisions */
    int64_t steps_left;
    size_t bytes_moved; /* not yet counted as steps */
    size_t max_output_bytes, max_builder_bytes, builder_bytes;
    int n_frames, n_calls;
    struct builder *builders; /* in use, innermost first */
    struct builder *out;
    struct scope *scope;
    struct scope *root;      /* variables of the rendering and functions */
    struct scope *top_level; /* what the template itself assigns, outside of any body */
    int64_t now;
    char *raised;
};

_Noreturn void jinja_fail(struct jinja *j, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);
#define jinja_type_error(j, ...) jinja_fail(j, ERR_FORMAT, __VA_ARGS__)
void *jinja_alloc(struct jinja *j, size_t n, size_t bytes);
/* p [*capacity] with room for one more behind its first n: as it is, or a copy twice as large where n is *capacity. */
void *jinja_grow(struct jinja *j, const void *p, size_t n, size_t *capacity, size_t bytes);
#define JINJA_NEW(j, type) ((type *)jinja_alloc((j), 1, sizeof(type)))
/* Counts work; every n elements or bytes moved or compared go through here, over the limit is an error. */
void jinja_charge(struct jinja *j, size_t n);
/* The same for bytes written, of which many make one step. */
void jinja_charge_bytes(struct jinja *j, size_t n);
void jinja_free_builders(struct jinja *j);

/* --- builders and strings (jinja_text.c) --------------------------------------------------------------------------- */

struct builder *builder_begin(struct jinja *j);
void builder_put(struct jinja *j, struct builder *b, const char *p, size_t n, bool is_user);
void builder_puts(struct jinja *j, struct builder *b, const char *s); /* as template text */
void builder_put_char(struct jinja *j, struct builder *b, uint32_t cp, bool is_user);
void builder_put_text(struct jinja *j, struct builder *b, const struct text *t);
void builder_put_range(struct jinja *j, struct builder *b, const struct text *t, size_t begin, size_t end);
/* Ends the innermost builder. */
struct value builder_finish(struct jinja *j, struct builder *b);

struct value text_value(const struct text *t);
/* A string of borrowed, well-formed bytes. */
struct value text_wrap(struct jinja *j, const char *p, size_t n, bool is_user);
struct value text_printf(struct jinja *j, const char *fmt, ...) PRINTF_LIKE(2, 3);
const struct text *text_slice(struct jinja *j, const struct text *t, size_t begin, size_t end);
/* Walks over the stretches of equal origin: at 0 first, then the *end of the one before. */
bool text_run(const struct text *t, size_t at, size_t *end, bool *is_user);
bool text_is_user_at(const struct text *t, size_t at);
bool text_equal(const struct text *a, const struct text *b);
bool text_is(const struct text *t, const char *s);
int text_compare(const struct text *a, const struct text *b);
size_t text_offset(const struct text *t, size_t i_char); /* byte offset of a character, i_char <= n_chars */
size_t text_chars(const char *p, size_t n);
struct value text_markup(struct jinja *j, const struct text *t, bool is_markup);
struct value text_escape(struct jinja *j, const struct text *t); /* for HTML; markup stays as it is */
/* Position of needle in hay[from..end), SIZE_MAX when absent. */
size_t text_find(struct jinja *j, const struct text *hay, size_t from, size_t end, const struct text *needle);
size_t text_find_last(struct jinja *j, const struct text *hay, size_t from, size_t end,
                      const struct text *needle);

/* --- characters (jinja_unicode.c) ------------------------------------------------------------------------------------ */

bool char_is_space(uint32_t cp);
bool char_is_alpha(uint32_t cp);
bool char_is_decimal(uint32_t cp);
bool char_is_digit(uint32_t cp);
bool char_is_numeric(uint32_t cp);
bool char_is_upper(uint32_t cp);
bool char_is_lower(uint32_t cp);
bool char_is_title(uint32_t cp);
bool char_is_cased(uint32_t cp);
bool char_is_printable(uint32_t cp);
bool char_is_name(uint32_t cp);
enum letter_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_FOLD };
int char_map(uint32_t cp, enum letter_case to, uint32_t out[3]); /* number of characters */
struct value text_map(struct jinja *j, const struct text *t, enum letter_case to);
struct value text_capitalize(struct jinja *j, const struct text *t);
struct value text_title(struct jinja *j, const struct text *t, bool words_by_filter);
struct value text_swap_case(struct jinja *j, const struct text *t);
/* Bounds of t without whitespace, or without the characters of chars (NULL: whitespace). */
const struct text *text_strip(struct jinja *j, const struct text *t, const struct text *chars, bool left,
                              bool right);

/* --- values (jinja_value.c) ---------------------------------------------------------------------------------------- */

struct value value_none(void);
struct value value_bool(bool b);
struct value value_int(int64_t i);
struct value value_double(double d);
struct value value_list(struct list *l);
struct value value_tuple(struct list *l);
struct value value_iterator(struct jinja *j, struct list *l, const char *name);
struct value value_undefined(struct jinja *j, struct value object, struct value name);
struct value value_undefined_hint(struct jinja *j, const char *hint);
_Noreturn void fail_undefined(struct jinja *j, struct value v);
const char *value_type_name(struct value v); /* as Python calls it */
bool value_is_true(struct jinja *j, struct value v);
bool value_is_number(struct value v); /* bool, int of any size, double */
bool value_is_callable(struct value v);
bool value_equal(struct jinja *j, struct value a, struct value b);
/* op: LESS, LESS_EQUAL, GREATER or GREATER_EQUAL */
bool value_order(struct jinja *j, struct value a, enum operator op, struct value b);
bool value_compare(struct jinja *j, struct value a, enum operator op,
                   struct value b);                                        /* also EQUAL, IN ... */
double value_to_double(struct value v);                                    /* a number */
int64_t value_to_index(struct jinja *j, struct value v, const char *what); /* bool or int, else an error */
/* -1: no length */
int64_t value_length(struct value v);

/* --- integers of more than 64 bits (jinja_big.c) ------------------------------------------------------------------- */

/* VALUE_INT where 64 bits suffice, else VALUE_BIG. digits: decimal, n > 0. */
struct value integer_from_digits(struct jinja *j, bool is_negative, const char *digits, size_t n);
struct value integer_from_double(struct jinja *j, double d); /* towards zero; d is finite */
struct value integer_negate(struct jinja *j, int64_t i);
struct value big_negate(struct jinja *j, const struct big *b);
double big_to_double(const struct big *b);
int big_compare(const struct big *a, const struct big *b); /* -1, 0, 1 */
int big_compare_double(const struct big *a, double d);     /* 2: d is NaN */
int64_t big_modulo(const struct big *a, int64_t by);       /* by is not 0 */

struct list *list_new(struct jinja *j, size_t capacity);
void list_push(struct jinja *j, struct list *l, struct value v);
struct dict *dict_new(struct jinja *j);
void dict_put(struct jinja *j, struct dict *d, struct value key, struct value value);
/* NULL when absent; a key that can't be hashed is absent too. */
struct value *dict_find(struct jinja *j, const struct dict *d, struct value key);
struct value *dict_find_text(struct jinja *j, const struct dict *d, const struct text *key);
bool value_is_hashable(struct value v);

struct iteration {
    struct value source;
    size_t at;
};
void iterate_begin(struct jinja *j, struct iteration *it,
                   struct value v); /* an error when v can't be iterated */
bool iterate_next(struct jinja *j, struct iteration *it, struct value *out);
bool value_is_iterable(struct value v);
struct list *value_to_list(struct jinja *j, struct value v);
/* Stable; each item of l is compared by the item of keys at its place. */
void list_sort(struct jinja *j, struct list *l, struct list *keys, bool reverse);

/* --- printing and JSON (jinja_print.c, jinja_json.c) ----------------------------------------------------------------- */

#define DOUBLE_CHARS 32
void double_repr(char out[DOUBLE_CHARS], double d);                         /* as Python prints it */
void builder_put_value(struct jinja *j, struct builder *b, struct value v); /* str() */
void builder_put_repr(struct jinja *j, struct builder *b, struct value v);
const struct text *value_to_text(struct jinja *j, struct value v); /* str() */

struct value json_to_value(struct jinja *j, struct str json, bool is_user, const char *name);
struct json_style {
    bool ascii, sort_keys;
    const struct text *indent;                         /* NULL: one line */
    const struct text *item_separator, *key_separator; /* NULL: as Python chooses */
};
void builder_put_json(struct jinja *j, struct builder *b, struct value v, const struct json_style *style);

/* --- string operations that filters share with methods (jinja_string.c, jinja_split.c) -------------------------------------- */

struct value text_replace(struct jinja *j, const struct text *t, const struct text *old,
                          const struct text *new, int64_t count); /* count < 0: all */
/* which: '<', '>', '^'; fill NULL: blanks */
struct value text_pad(struct jinja *j, const struct text *t, int64_t width, const struct text *fill,
                      char which);
struct list *text_lines(struct jinja *j, const struct text *t, bool keep_ends);

/* --- formatting (jinja_format.c) -------------------------------------------------------------------------------------- */

struct value format_percent(struct jinja *j, const struct text *format, struct value args);
struct value format_braces(struct jinja *j, const struct text *format, const struct call_args *a);
double round_double(double d, int digits);
/* int() and float() of a string; false when it isn't one. base 0: by prefix. */
bool text_to_int(struct jinja *j, const struct text *t, int base, int64_t *out);
bool text_to_double(struct jinja *j, const struct text *t, double *out);

/* --- lexer (jinja_lex.c) ---------------------------------------------------------------------------------------------- */

enum token_kind {
    TOKEN_END,
    TOKEN_DATA,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_VARIABLE_BEGIN,
    TOKEN_VARIABLE_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INT,
    TOKEN_DOUBLE,
    TOKEN_OPERATOR
};

struct token {
    enum token_kind kind;
    int line, column;
    struct str text;       /* DATA, NAME, OPERATOR: as written */
    struct value constant; /* STRING, INT, DOUBLE */
};

struct lexer {
    struct jinja *j;
    const char *p; /* newlines are all \n */
    size_t n, at;
    int line;
    size_t column, counted; /* line and column hold for the byte `counted` */
    enum { LEX_ROOT, LEX_RAW, LEX_BLOCK, LEX_VARIABLE } state;
    bool has_data; /* what `begin` says comes after the data just given */
    struct token begin;
    char open[JINJA_MAX_NESTING + 1];
    int n_open;
};

/* text must outlive the tokens. */
void lexer_init(struct lexer *l, struct jinja *j, const char *text, size_t n);
void lexer_next(struct lexer *l, struct token *t);

/* --- parser (jinja_parse.c, jinja_expression.c) -------------------------------------------------------------------------- */

struct parser {
    struct jinja *j;
    struct lexer lexer;
    struct token now, next;
    struct jinja_template *t;
    int depth;                  /* nesting of statements and expressions */
    int n_soft;                 /* inside an if, where an unknown filter is no error until it is used */
    const struct node *unknown; /* the first unknown filter or test outside of an if, not yet reported */
    int n_loops;                /* loops around in this macro */
    int n_for;                  /* loops around at all */
    struct macro_definition *macros[JINJA_MAX_NESTING + 1]; /* around, outermost first */
    int n_macros;
};

_Noreturn void parser_fail(struct parser *p, const struct token *at, enum err_code code, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
void parser_advance(struct parser *p);
bool parser_is_name(const struct token *t, const char *name);
bool parser_is_operator(const struct token *t, const char *op);
bool parser_skip_name(struct parser *p, const char *name);
bool parser_skip_operator(struct parser *p, const char *op);
void parser_expect_operator(struct parser *p, const char *op);
const struct text *parser_expect_name(struct parser *p);
const struct text *parser_intern(struct parser *p, struct str name);
const char *parser_describe(struct parser *p, const struct token *t);
void parser_enter(struct parser *p);
void parser_leave(struct parser *p);
struct node *node_new(struct parser *p, enum node_kind kind, const struct token *at);
void node_depth(struct parser *p, struct node *n, const struct node *child);
void node_list_push(struct jinja *j, struct node_list *l, struct node *n);

struct node *parse_expression(struct parser *p, bool with_condition);
/* end_name: a name that ends the tuple ("in"), may be NULL */
struct node *parse_tuple(struct parser *p, bool with_condition, bool is_in_parentheses, const char *end_name);
/* One or more names or, with_namespace, ns.attribute. */
struct node *parse_target(struct parser *p, const char *end_name, bool with_namespace);
void find_hidden_names(struct jinja *j, struct jinja_template *t); /* jinja_names.c */
struct node *parse_filters(struct parser *p, struct node *a, bool starts_inline);

/* --- evaluator (jinja_eval.c, jinja_call.c, jinja_statement.c) ------------------------------------------------------------- */

struct value eval_node(struct jinja *j, const struct node *n);
struct value eval_call(struct jinja *j, const struct node *n,
                       const struct value *caller); /* caller may be NULL */
struct value eval_filter(struct jinja *j, const struct node *n, struct value input);
struct value eval_test(struct jinja *j, const struct node *n);
struct value eval_binary(struct jinja *j, enum operator op, struct value a, struct value b);
/* x.name and x[key] */
struct value value_attribute(struct jinja *j, struct value v, const struct text *name);
struct value value_item(struct jinja *j, struct value v, struct value key);
struct value value_call(struct jinja *j, struct value callee, const struct call_args *a);
struct value function_value(struct jinja *j, const struct builtin *b, struct value self);

struct value *scope_find(struct scope *s, const struct text *name);
void scope_put(struct jinja *j, struct scope *s, const struct text *name, struct value v);
struct scope *scope_new(struct jinja *j, struct scope *parent);
void scope_capture(struct scope *s);
void scope_hide(struct jinja *j, struct scope *s, const struct name_list *hidden);

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };
enum flow exec_list(struct jinja *j, const struct node_list *l);
void assign_target(struct jinja *j, const struct node *target, struct value v);
struct value macro_call(struct jinja *j, struct macro *m, const struct call_args *a);
struct value loop_attribute(struct jinja *j, struct loop *l,
                            const struct text *name); /* MISSING: none such */
struct value loop_call(struct jinja *j, struct loop *l, struct value items);
void loop_print(struct jinja *j, struct builder *b, struct loop *l);
size_t loop_length(struct jinja *j, struct loop *l);
void frame_enter(struct jinja *j);
void frame_leave(struct jinja *j);

/* --- filters, tests, methods, functions -------------------------------------------------------------------------------------- */

/* spec: names of the parameters, with "!" behind those that must be given ("value! default"); out: one value each,
 * MISSING where not given. */
void parameters_bind(struct jinja *j, const char *function, const char *spec, const struct call_args *a,
                     struct value *out);
bool parameter_bool(struct jinja *j, struct value v, bool otherwise);
int64_t parameter_int(struct jinja *j, struct value v, int64_t otherwise, const char *what);
const struct text *parameter_text(struct jinja *j, struct value v,
                                  const char *what); /* a string, else an error */

const struct builtin *find_filter(struct str name);
const struct builtin *find_sequence_filter(struct str name);
const struct builtin *find_test(struct str name);
const struct builtin *find_string_method(const struct text *name);
const struct builtin *find_split_method(const struct text *name);
const struct builtin *find_builtin(const struct builtin *table, size_t n, struct str name);
/* Methods of anything but strings; NULL when there is none. *unsafe: one that changes its object. */
const struct builtin *find_method(struct value v, const struct text *name, bool *unsafe);
void define_globals(struct jinja *j);

#endif
