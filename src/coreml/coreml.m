/* coreml.h over Apple's framework. Manual reference counting: what alloc, new and newState give is owned here and released by the
 * close functions; everything else is the autorelease pool's that each function has. Tests compile this very file
 * against a stand-in (tests/coreml), whose runtime has no ARC, no subscripts and no blocks that are objects: so none are
 * used. What a system may lack is asked for with IF_MACOS_15 and IF_MACOS_14_4.
 */
#import <CoreML/CoreML.h>
#import <Foundation/Foundation.h>
#include <pthread.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include "base/half.h"
#include "base/mem.h"
#include "coreml/coreml.h"

#if defined(__APPLE__)
#define IF_MACOS_15 if (@available(macOS 15.0, *))
#define IF_MACOS_14_4 if (@available(macOS 14.4, *))
#else
#define IF_MACOS_15 if (1)
#define IF_MACOS_14_4 if (1)
#endif
#define SINCE(version) __attribute__((availability(macos, introduced = version)))

#ifndef COREML_NAME
#define COREML_NAME "Core ML"
#endif

bool coreml_check(struct err *e)
{
    (void)e;
    return true;
}

const char *coreml_name(void)
{
    return COREML_NAME;
}

/* ---- errors ---- */

/* What messages of the system mean, where that is known. */
static const struct {
    const char *part, *meaning;
} known_errors[] = {
    {"ANECCompile() FAILED", "the Neural Engine's compiler refused the program"},
    {"model execution plan", "no device took the program; the Neural Engine's compiler may have refused it"},
    {"Error plan build", "no device took the program; the Neural Engine's compiler may have refused it"},
    {"Program load failure", "the compiled program did not fit the Neural Engine"},
    {"ANEProgramProcessRequestDirect", "the Neural Engine failed while it ran the program"},
    {"Unable to extract model type", "the file is damaged, or of a newer system"},
};

static const char *text_of(NSString *s)
{
    const char *text = [s UTF8String];
    return text ? text : "";
}

static NSString *string_of(const char *s)
{
    NSString *text = [NSString stringWithUTF8String:s];
    return text ? text : @"";
}

/* The messages from the outermost to the cause, in one line, and what is known of them. */
static bool fail_with(struct err *e, const char *what, const char *path, NSError *error)
{
    char text[700] = "";
    size_t n = 0;
    for (NSError *at = error; at && n + 1 < sizeof text;
         at = [[at userInfo] objectForKey:NSUnderlyingErrorKey]) {
        const char *message = text_of([at localizedDescription]);
        if (strstr(text, message) && n > 0)
            continue;
        int wrote = snprintf(text + n, sizeof text - n, "%s%s (%s %ld)", n ? ": " : "", message,
                             text_of([at domain]), (long)[at code]);
        n += wrote > 0 ? (size_t)wrote : 0;
    }
    for (char *p = text; *p; p++)
        *p = *p == '\n' ? ' ' : *p;
    const char *meaning = NULL;
    for (size_t i = 0; i < sizeof known_errors / sizeof *known_errors && !meaning; i++)
        meaning = strstr(text, known_errors[i].part) ? known_errors[i].meaning : NULL;
    return err_set(e, ERR_FAILED, "%s%s%s: %s%s%s", path, path[0] ? ": " : "", what,
                   n ? text : "the system gave no reason", meaning ? "; " : "", meaning ? meaning : "");
}

static bool fail_thrown(struct err *e, const char *what, NSException *x)
{
    return err_set(e, ERR_FAILED, "%s: the system raised %s: %s", what, text_of([x name]),
                   text_of([x reason]));
}

/* ---- arrays ---- */

/* Where the elements of an array lie; strides count elements. */
struct layout {
    int rank;
    int64_t dims[MIL_RANK_MAX], strides[MIL_RANK_MAX];
};

static int64_t layout_elems(const struct layout *l)
{
    int64_t n = 1;
    for (int i = 0; i < l->rank; i++)
        n *= l->dims[i];
    return n;
}

/* False: more axes than there may be. Strides that can't be (0 was seen) are taken for those of rows without gaps. */
static bool layout_of(struct layout *l, NSArray<NSNumber *> *shape, NSArray<NSNumber *> *strides)
{
    int64_t extent = 1;
    *l = (struct layout){.rank = (int)[shape count]};
    if ([shape count] > MIL_RANK_MAX || [strides count] != [shape count])
        return false;
    for (int i = 0; i < l->rank; i++) {
        l->dims[i] = [[shape objectAtIndex:(NSUInteger)i] integerValue];
        l->strides[i] = [[strides objectAtIndex:(NSUInteger)i] integerValue];
    }
    bool is_possible = true;
    for (int i = l->rank - 1; i >= 0; i--) {
        is_possible = is_possible && (l->dims[i] <= 1 || l->strides[i] >= extent);
        if (l->dims[i] > 1)
            extent = l->strides[i] * (l->dims[i] - 1) + extent;
    }
    for (int i = l->rank - 1, n = 1; !is_possible && i >= 0; i--) {
        l->strides[i] = n;
        n *= (int)l->dims[i];
    }
    return true;
}

static bool layout_fits(const struct layout *l, size_t elem_bytes, NSInteger bytes)
{
    int64_t last = 0;
    for (int i = 0; i < l->rank; i++) {
        if (l->dims[i] <= 0)
            return false;
        last += (l->dims[i] - 1) * l->strides[i];
    }
    return bytes >= 0 && (uint64_t)(last + 1) * elem_bytes <= (uint64_t)bytes;
}

/* Elements [first, first + n) in row-major order between an array and flat memory. */
static void layout_copy(const struct layout *l, char *base, int64_t first, int64_t n, size_t elem_bytes,
                        char *flat, bool to_flat)
{
    int64_t length = l->rank > 0 ? l->dims[l->rank - 1] : 1, step = l->rank > 0 ? l->strides[l->rank - 1] : 1;
    while (n > 0) {
        int64_t row = first / length, column = first % length, take = length - column < n ? length - column : n;
        int64_t at = column * step;
        for (int i = l->rank - 2; i >= 0; i--) {
            at += row % l->dims[i] * l->strides[i];
            row /= l->dims[i];
        }
        int64_t run = step == 1 ? take : 1;
        for (int64_t k = 0; k < take; k += run) {
            char *in_array = base + (size_t)(at + k * step) * elem_bytes;
            size_t bytes = (size_t)run * elem_bytes;
            memcpy(to_flat ? flat : in_array, to_flat ? in_array : flat, bytes);
            flat += bytes;
        }
        first += take;
        n -= take;
    }
}

static bool type_of(enum mil_dtype d, MLMultiArrayDataType *out)
{
    *out = d == MIL_FP16 ? MLMultiArrayDataTypeFloat16
           : d == MIL_FP32 ? MLMultiArrayDataTypeFloat32
                           : MLMultiArrayDataTypeInt32;
    return d == MIL_FP16 || d == MIL_FP32 || d == MIL_INT32;
}

static size_t type_bytes(MLMultiArrayDataType t)
{
    return t == MLMultiArrayDataTypeFloat16 ? 2 : 4;
}

/* An array [n_elems] of zeros over memory of its own, owned by the caller; *memory stays valid as long as the array. NULL: no memory. */
static MLMultiArray *array_new(const struct mil_port *port, void **memory, struct err *e)
{
    MLMultiArrayDataType type;
    NSMutableArray<NSNumber *> *shape = [NSMutableArray array], *strides = [NSMutableArray array];
    int64_t stride = port->n_elems;
    if (!type_of(port->dtype, &type)) {
        err_set(e, ERR_UNSUPPORTED, "%s: numbers of type %s are none that Core ML is given", port->name,
                mil_dtype_name(port->dtype));
        return nil;
    }
    for (int i = 0; i < port->rank; i++) {
        stride = port->dims[i] > 0 ? stride / port->dims[i] : 0;
        [shape addObject:[NSNumber numberWithLongLong:port->dims[i]]];
        [strides addObject:[NSNumber numberWithLongLong:stride]];
    }
    if (!(*memory = mem_try_alloc((size_t)port->n_elems * type_bytes(type) + 64, e)))
        return nil;
    NSError *error = nil;
    MLMultiArray *array = [[MLMultiArray alloc] initWithDataPointer:*memory
                                                              shape:shape
                                                           dataType:type
                                                            strides:strides
                                                        deallocator:^(void *p) {
                                                          mem_free(p);
                                                        }
                                                              error:&error];
    if (!array) {
        mem_free(*memory);
        *memory = NULL;
        fail_with(e, "an array", port->name, error);
    }
    return array;
}

/* What a prediction is given: made once, asked by each call. */
@interface MilkitFeatures : NSObject <MLFeatureProvider> {
    NSMutableDictionary<NSString *, MLFeatureValue *> *values;
    NSMutableSet<NSString *> *names;
}
- (void)add:(MLMultiArray *)array named:(NSString *)name;
@end

@implementation MilkitFeatures
- (instancetype)init
{
    if ((self = [super init])) {
        values = [[NSMutableDictionary alloc] init];
        names = [[NSMutableSet alloc] init];
    }
    return self;
}
- (void)dealloc
{
    [values release];
    [names release];
    [super dealloc];
}
- (void)add:(MLMultiArray *)array named:(NSString *)name
{
    [values setObject:[MLFeatureValue featureValueWithMultiArray:array] forKey:name];
    [names addObject:name];
}
- (NSSet<NSString *> *)featureNames
{
    return names;
}
- (MLFeatureValue *)featureValueForName:(NSString *)name
{
    return [values objectForKey:name];
}
@end

/* ---- models ---- */

struct coreml_model {
    MLModel *model;
    char *path;
};

static MLModelConfiguration *configuration(const char *path, const char *function, enum coreml_units units,
                                           struct err *e)
{
    static const MLComputeUnits numbers[] = {[COREML_CPU_AND_ENGINE] = MLComputeUnitsCPUAndNeuralEngine,
                                             [COREML_CPU_AND_GPU] = MLComputeUnitsCPUAndGPU,
                                             [COREML_CPU_ONLY] = MLComputeUnitsCPUOnly,
                                             [COREML_ALL] = MLComputeUnitsAll};
    MLModelConfiguration *c = [[[MLModelConfiguration alloc] init] autorelease];
    c.computeUnits = numbers[units];
    if (function) {
        IF_MACOS_15 {
            c.functionName = string_of(function);
        } else {
            err_set(e, ERR_UNSUPPORTED, "%s: function %s: models of several functions need macOS 15", path,
                    function);
            c = nil;
        }
    }
    return c;
}

static NSURL *url_of(const char *path)
{
    return [NSURL fileURLWithPath:string_of(path)];
}

bool coreml_compile(const char *mlpackage, char **out, struct err *e)
{
    *out = NULL;
    @autoreleasepool {
        @try {
            NSError *error = nil;
            NSURL *made = [MLModel compileModelAtURL:url_of(mlpackage) error:&error];
            if (made)
                *out = xstrdup(text_of([made path]));
            else
                fail_with(e, "compiling", mlpackage, error);
        } @catch (NSException *x) {
            fail_thrown(e, mlpackage, x);
        }
    }
    return *out != NULL;
}

bool coreml_model_open(struct coreml_model **out, const char *mlmodelc, const char *function,
                       enum coreml_units units, struct err *e)
{
    *out = NULL;
    @autoreleasepool {
        @try {
            NSError *error = nil;
            MLModelConfiguration *c = configuration(mlmodelc, function, units, e);
            MLModel *model =
                c ? [MLModel modelWithContentsOfURL:url_of(mlmodelc) configuration:c error:&error] : nil;
            if (model) {
                *out = xcalloc(1, sizeof **out);
                (*out)->model = [model retain];
                (*out)->path = xstrdup(mlmodelc);
            } else if (c) {
                fail_with(e, "loading", mlmodelc, error);
            }
        } @catch (NSException *x) {
            fail_thrown(e, mlmodelc, x);
        }
    }
    return *out != NULL;
}

void coreml_model_close(struct coreml_model *m)
{
    if (!m)
        return;
    @autoreleasepool {
        [m->model release];
    }
    free(m->path);
    free(m);
}

static bool ports_agree(const char *path, const char *what,
                        NSDictionary<NSString *, MLFeatureDescription *> *by_name,
                        const struct mil_port *ports, int n, struct err *e)
{
    for (int i = 0; i < n; i++) {
        MLFeatureDescription *d = [by_name objectForKey:string_of(ports[i].name)];
        MLMultiArrayDataType type;
        if (!d)
            return err_set(e, ERR_FORMAT, "%s: Core ML names no %s %s", path, what, ports[i].name);
        MLMultiArrayConstraint *array = d.multiArrayConstraint;
        if (array && (!type_of(ports[i].dtype, &type) || array.dataType != type))
            return err_set(e, ERR_FORMAT, "%s: %s %s: expected %s, Core ML says type %ld", path, what,
                           ports[i].name, mil_dtype_name(ports[i].dtype), (long)array.dataType);
    }
    return true;
}

bool coreml_model_agrees(const struct coreml_model *m, const struct mil_port *inputs, int n_inputs,
                         const struct mil_port *outputs, int n_outputs, const struct mil_port *states,
                         int n_states, struct err *e)
{
    bool ok = false;
    @autoreleasepool {
        @try {
            MLModelDescription *d = m->model.modelDescription;
            ok = ports_agree(m->path, "input", d.inputDescriptionsByName, inputs, n_inputs, e) &&
                 ports_agree(m->path, "output", d.outputDescriptionsByName, outputs, n_outputs, e);
            if (ok && n_states > 0) {
                IF_MACOS_15 {
                    ok = ports_agree(m->path, "state", d.stateDescriptionsByName, states, n_states, e);
                } else {
                    ok = err_set(e, ERR_UNSUPPORTED, "%s: models with states need macOS 15", m->path);
                }
            }
        } @catch (NSException *x) {
            ok = fail_thrown(e, m->path, x);
        }
    }
    return ok;
}

/* ---- states ---- */

struct coreml_state {
    MLModel *model; /* that made it */
    id state;       /* MLState */
    struct err error;
};

static bool state_renew(struct coreml_state *s)
{
    bool ok = false;
    @autoreleasepool {
        @try {
            IF_MACOS_15 {
                id fresh = [s->model newState];
                ok = fresh != nil || err_set(&s->error, ERR_FAILED, "the system made no state");
                if (ok) {
                    [s->state release];
                    s->state = fresh;
                    s->error = (struct err){0};
                }
            } else {
                err_set(&s->error, ERR_UNSUPPORTED, "states need macOS 15");
            }
        } @catch (NSException *x) {
            ok = fail_thrown(&s->error, "a new state", x);
        }
    }
    return ok;
}

bool coreml_state_open(struct coreml_state **out, const struct coreml_model *m, struct err *e)
{
    struct coreml_state *s = xcalloc(1, sizeof *s);
    s->model = [m->model retain];
    *out = s;
    if (state_renew(s))
        return true;
    *e = s->error;
    coreml_state_close(s);
    *out = NULL;
    return false;
}

void coreml_state_close(struct coreml_state *s)
{
    if (!s)
        return;
    @autoreleasepool {
        [s->state release];
        [s->model release];
    }
    free(s);
}

void coreml_state_clear(struct coreml_state *s)
{
    (void)!state_renew(s);
}

/* What a look into a state wants. */
struct view {
    int64_t first, n;
    char *flat; /* NULL: the type alone */
    bool to_flat;
    MLMultiArrayDataType type;
};

static bool look(id state, const char *name, struct view *v, struct err *e) SINCE(15.0);
static bool look(id state, const char *name, struct view *v, struct err *e)
{
    __block bool ok = false;
    [(MLState *)state
        getMultiArrayForStateNamed:string_of(name)
                           handler:^(MLMultiArray *array) {
                             NSArray<NSNumber *> *shape = array.shape;
                             v->type = array.dataType;
                             if (v->type != MLMultiArrayDataTypeFloat16 &&
                                 v->type != MLMultiArrayDataTypeFloat32) {
                                 err_set(e, ERR_UNSUPPORTED, "state %s is held as type %ld", name,
                                         (long)v->type);
                                 return;
                             }
                             ok = v->flat == NULL;
                             if (ok)
                                 return;
                             [array getMutableBytesWithHandler:^(void *bytes, NSInteger size,
                                                                 NSArray<NSNumber *> *strides) {
                               struct layout l;
                               ok = layout_of(&l, shape, strides) && v->first + v->n <= layout_elems(&l) &&
                                    layout_fits(&l, type_bytes(v->type), size);
                               if (ok)
                                   layout_copy(&l, bytes, v->first, v->n, type_bytes(v->type), v->flat,
                                               v->to_flat);
                               else
                                   err_set(e, ERR_FAILED, "state %s is not laid out as its shape says", name);
                             }];
                           }];
    return ok || e->code || err_set(e, ERR_FAILED, "state %s could not be seen", name);
}

static bool look_safely(struct coreml_state *s, const char *name, struct view *v, struct err *e)
{
    bool ok = false;
    struct err why = {0};
    @autoreleasepool {
        @try {
            IF_MACOS_15 {
                ok = look(s->state, name, v, &why) && !why.code;
            }
        } @catch (NSException *x) {
            ok = fail_thrown(&why, name, x);
        }
    }
    if (!ok && !e->code)
        *e = why;
    return ok;
}

bool coreml_state_type(struct coreml_state *s, const char *name, enum mil_dtype *out, struct err *e)
{
    struct view v = {0};
    bool ok = look_safely(s, name, &v, e);
    *out = !ok ? MIL_DTYPE_NONE : v.type == MLMultiArrayDataTypeFloat16 ? MIL_FP16 : MIL_FP32;
    return ok;
}

void coreml_state_read(struct coreml_state *s, const char *name, int64_t first, int64_t n, void *dst)
{
    struct view v = {.first = first, .n = n, .flat = dst, .to_flat = true};
    (void)!look_safely(s, name, &v, &s->error);
}

void coreml_state_write(struct coreml_state *s, const char *name, int64_t first, int64_t n, const void *src)
{
    struct view v = {.first = first, .n = n, .flat = (char *)(uintptr_t)src};
    (void)!look_safely(s, name, &v, &s->error);
}

/* ---- calls ---- */

struct coreml_call {
    MLModel *model;
    const struct mil_port *inputs, *outputs;
    int n_inputs, n_outputs;
    MilkitFeatures *features;
    MLPredictionOptions *options; /* with the backings */
    MLPredictionOptions *plain;
    MLMultiArray **backings; /* [n_outputs] */
    void **in, **out;        /* memory of the arrays, as declared */
    bool refuses_backings;   /* the first call with them failed */
    bool takes_backings;     /* one did not */
};

static bool make_arrays(struct coreml_call *c, struct err *e)
{
    NSMutableDictionary *backings = [NSMutableDictionary dictionary];
    c->features = [[MilkitFeatures alloc] init];
    c->options = [[MLPredictionOptions alloc] init];
    c->plain = [[MLPredictionOptions alloc] init];
    for (int i = 0; i < c->n_inputs; i++) {
        MLMultiArray *array = array_new(&c->inputs[i], &c->in[i], e);
        if (!array)
            return false;
        [c->features add:array named:string_of(c->inputs[i].name)];
        [array release];
    }
    for (int i = 0; i < c->n_outputs; i++) {
        c->backings[i] = array_new(&c->outputs[i], &c->out[i], e);
        if (!c->backings[i])
            return false;
        [backings setObject:c->backings[i] forKey:string_of(c->outputs[i].name)];
    }
    c->options.outputBackings = backings;
    return true;
}

bool coreml_call_open(struct coreml_call **out, const struct coreml_model *m, const struct mil_port *inputs,
                      int n_inputs, const struct mil_port *outputs, int n_outputs, struct err *e)
{
    struct coreml_call *c = xcalloc(1, sizeof *c);
    bool ok = false;
    *c = (struct coreml_call){
        .inputs = inputs, .outputs = outputs, .n_inputs = n_inputs, .n_outputs = n_outputs};
    c->model = [m->model retain];
    c->backings = xcalloc((size_t)n_outputs + 1, sizeof *c->backings);
    c->in = xcalloc((size_t)n_inputs + 1, sizeof *c->in);
    c->out = xcalloc((size_t)n_outputs + 1, sizeof *c->out);
    @autoreleasepool {
        @try {
            ok = make_arrays(c, e);
        } @catch (NSException *x) {
            ok = fail_thrown(e, m->path, x);
        }
    }
    *out = ok ? c : NULL;
    if (!ok)
        coreml_call_close(c);
    return ok;
}

void coreml_call_close(struct coreml_call *c)
{
    if (!c)
        return;
    @autoreleasepool {
        for (int i = 0; i < c->n_outputs; i++)
            [c->backings[i] release];
        [c->features release];
        [c->options release];
        [c->plain release];
        [c->model release];
    }
    free(c->backings);
    free(c->in);
    free(c->out);
    free(c);
}

static id<MLFeatureProvider> predict(struct coreml_call *c, struct coreml_state *state, NSError **error)
{
    MLPredictionOptions *options = c->refuses_backings ? c->plain : c->options;
    if (!state)
        return [c->model predictionFromFeatures:c->features options:options error:error];
    IF_MACOS_15 {
        return [c->model predictionFromFeatures:c->features
                                     usingState:(MLState *)state->state
                                        options:options
                                          error:error];
    }
    return nil;
}

/* Output i, wherever Core ML put it, to the caller's memory. */
static bool take_output(struct coreml_call *c, int i, MLMultiArray *array, void *dst, struct err *e)
{
    const struct mil_port *port = &c->outputs[i];
    MLMultiArrayDataType type;
    struct layout l = {0};
    size_t n = (size_t)port->n_elems;
    __block bool ok = true;
    if (!type_of(port->dtype, &type) || !array)
        return err_set(e, ERR_FAILED, "output %s: the system gave none", port->name);
    if (array != c->backings[i]) {
        bool same = array.dataType == type && layout_of(&l, array.shape, array.strides) && l.rank == port->rank;
        for (int k = 0; same && k < l.rank; k++)
            same = l.dims[k] == port->dims[k];
        if (!same)
            return err_set(e, ERR_FAILED, "output %s: the system gave another shape or type than declared",
                           port->name);
        struct layout *from = &l;
        [array getBytesWithHandler:^(const void *bytes, NSInteger size) {
          ok = layout_fits(from, type_bytes(type), size);
          if (ok)
              layout_copy(from, (char *)(uintptr_t)bytes, 0, (int64_t)n, type_bytes(type), c->out[i], true);
        }];
        if (!ok)
            return err_set(e, ERR_FAILED, "output %s is not laid out as its shape says", port->name);
    }
    if (port->dtype == MIL_FP16)
        f16_to_f32_n(dst, c->out[i], n);
    else
        memcpy(dst, c->out[i], 4 * n);
    return true;
}

static bool run(struct coreml_call *c, const void *const *inputs, void *const *outputs,
                struct coreml_state *state, struct err *e)
{
    for (int i = 0; i < c->n_inputs; i++) {
        size_t n = (size_t)c->inputs[i].n_elems;
        if (c->inputs[i].dtype == MIL_FP16)
            f32_to_f16_n(c->in[i], inputs[i], n);
        else
            memcpy(c->in[i], inputs[i], 4 * n);
    }
    NSError *error = nil;
    id<MLFeatureProvider> found = predict(c, state, &error);
    if (!found && !c->refuses_backings && !c->takes_backings) {
        /* Memory of the caller's can be refused, before anything runs. */
        c->refuses_backings = true;
        found = predict(c, state, &error);
        c->refuses_backings = found != nil;
    }
    if (!found)
        return fail_with(e, "predicting", "", error);
    c->takes_backings = !c->refuses_backings;
    for (int i = 0; i < c->n_outputs; i++) {
        MLFeatureValue *value = [found featureValueForName:string_of(c->outputs[i].name)];
        if (!take_output(c, i, value.multiArrayValue, outputs[i], e))
            return false;
    }
    return true;
}

bool coreml_call_run(struct coreml_call *c, const void *const *inputs, void *const *outputs,
                     struct coreml_state *state, struct err *e)
{
    bool ok = false;
    if (state && state->error.code) {
        *e = state->error;
        return false;
    }
    @autoreleasepool {
        @try {
            ok = run(c, inputs, outputs, state, e);
        } @catch (NSException *x) {
            ok = fail_thrown(e, "predicting", x);
        }
    }
    return ok;
}

/* ---- plans ---- */

/* A completion handler's result, waited for; no dispatch library is asked for. */
struct waiting {
    pthread_mutex_t mutex;
    pthread_cond_t done;
    bool is_done;
    id plan;        /* owned */
    NSError *error; /* owned */
};

static id load_plan(const char *path, MLModelConfiguration *c, struct err *e) SINCE(14.4);
static id load_plan(const char *path, MLModelConfiguration *c, struct err *e)
{
    struct waiting w = {.mutex = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};
    struct waiting *to = &w;
    [MLComputePlan loadContentsOfURL:url_of(path)
                       configuration:c
                   completionHandler:^(MLComputePlan *plan, NSError *error) {
                     pthread_mutex_lock(&to->mutex);
                     to->plan = [plan retain];
                     to->error = [error retain];
                     to->is_done = true;
                     pthread_cond_signal(&to->done);
                     pthread_mutex_unlock(&to->mutex);
                   }];
    pthread_mutex_lock(&w.mutex);
    while (!w.is_done)
        pthread_cond_wait(&w.done, &w.mutex);
    pthread_mutex_unlock(&w.mutex);
    if (!w.plan)
        fail_with(e, "planning", path, w.error);
    [w.error release];
    return [w.plan autorelease];
}

static const char *device_name(id device) SINCE(14.4);
static const char *device_name(id device)
{
    return [device isKindOfClass:[MLNeuralEngineComputeDevice class]] ? "engine"
           : [device isKindOfClass:[MLGPUComputeDevice class]]        ? "gpu"
           : [device isKindOfClass:[MLCPUComputeDevice class]]        ? "processor"
                                                                      : "";
}

static bool walk(MLComputePlan *plan, MLModelStructureProgramBlock *block, coreml_plan_fn *each,
                 void *context, struct err *e) SINCE(14.4);
static bool walk(MLComputePlan *plan, MLModelStructureProgramBlock *block, coreml_plan_fn *each,
                 void *context, struct err *e)
{
    for (MLModelStructureProgramOperation *op in block.operations) {
        MLComputePlanDeviceUsage *usage = [plan computeDeviceUsageForMLProgramOperation:op];
        MLComputePlanCost *cost = [plan estimatedCostOfMLProgramOperation:op];
        MLModelStructureProgramNamedValueType *first =
            [op.outputs count] ? [op.outputs objectAtIndex:0] : nil;
        struct coreml_plan_op row = {.type = text_of(op.operatorName),
                                     .output = text_of(first.name),
                                     .preferred = usage ? device_name(usage.preferredComputeDevice) : "",
                                     .cost = cost ? cost.weight : (double)__builtin_nanf("")};
        for (id device in usage.supportedComputeDevices) {
            const char *name = device_name(device);
            row.on_engine = row.on_engine || strcmp(name, "engine") == 0;
            row.on_gpu = row.on_gpu || strcmp(name, "gpu") == 0;
            row.on_processor = row.on_processor || strcmp(name, "processor") == 0;
        }
        if (!each(context, &row, e))
            return false;
        for (MLModelStructureProgramBlock *inner in op.blocks)
            if (!walk(plan, inner, each, context, e))
                return false;
    }
    return true;
}

static bool walk_function(const char *path, const char *function, MLModelConfiguration *c,
                          coreml_plan_fn *each, void *context, struct err *e) SINCE(14.4);
static bool walk_function(const char *path, const char *function, MLModelConfiguration *c,
                          coreml_plan_fn *each, void *context, struct err *e)
{
    MLComputePlan *plan = load_plan(path, c, e);
    if (!plan)
        return false;
    MLModelStructureProgram *program = plan.modelStructure.program;
    if (!program)
        return err_set(e, ERR_UNSUPPORTED, "%s: the system plans only ML Programs", path);
    NSDictionary<NSString *, MLModelStructureProgramFunction *> *functions = program.functions;
    MLModelStructureProgramFunction *f = nil;
    if (function)
        f = [functions objectForKey:string_of(function)];
    else
        for (NSString *name in functions)
            f = [functions objectForKey:name]; /* the only one */
    return f ? walk(plan, f.block, each, context, e)
             : err_set(e, ERR_FORMAT, "%s: the plan has no function %s", path, function ? function : "at all");
}

bool coreml_plan(const char *mlmodelc, const char *function, enum coreml_units units, coreml_plan_fn *each,
                 void *context, struct err *e)
{
    bool ok = false;
    @autoreleasepool {
        @try {
            IF_MACOS_14_4 {
                MLModelConfiguration *c = configuration(mlmodelc, function, units, e);
                ok = c && walk_function(mlmodelc, function, c, each, context, e);
            } else {
                ok = err_set(e, ERR_UNSUPPORTED, "plans need macOS 14.4");
            }
        } @catch (NSException *x) {
            ok = fail_thrown(e, mlmodelc, x);
        }
    }
    return ok;
}
