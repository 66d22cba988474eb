/* A stand-in for Core ML, served by milkit's engine: what the backend marshals (names, types, strides, states, lifetimes) is
 * executed, with every liberty that the real one takes: arrays with gaps, backings that are ignored, views that end. */
#import <CoreML/CoreML.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "device/place.h"
#include "mil/compiled.h"
#include "runtime/backend.h"
#include "standin.h"

extern const struct backend backend_engine;

static int n_living;
static long n_predictions, n_backings_used, n_padded;
static char *given_words; /* NULL: of the environment */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Is the word given? *n (may be NULL): what follows its "=". */
static bool has_word(const char *word, long *n)
{
    const char *words = given_words ? given_words : getenv("MILKIT_STANDIN");
    size_t length = strlen(word);
    for (const char *at = words; at && (at = strstr(at, word)); at += length)
        if ((at == words || at[-1] == ',') && strchr(",=", at[length])) {
            if (n)
                *n = at[length] == '=' ? atol(at + length + 1) : 0;
            return true;
        }
    return false;
}

void standin_set(const char *words)
{
    free(given_words);
    given_words = words ? xstrdup(words) : NULL;
}

int standin_living(void)
{
    return __atomic_load_n(&n_living, __ATOMIC_SEQ_CST);
}

long standin_predictions(void)
{
    return __atomic_load_n(&n_predictions, __ATOMIC_SEQ_CST);
}

long standin_backings_used(void)
{
    return __atomic_load_n(&n_backings_used, __ATOMIC_SEQ_CST);
}

long standin_padded_outputs(void)
{
    return __atomic_load_n(&n_padded, __ATOMIC_SEQ_CST);
}

@implementation StandinObject
+ (id)allocWithZone:(NSZone *)zone
{
    __atomic_fetch_add(&n_living, 1, __ATOMIC_SEQ_CST);
    return [super allocWithZone:zone];
}
- (void)dealloc
{
    __atomic_fetch_sub(&n_living, 1, __ATOMIC_SEQ_CST);
    [super dealloc];
}
@end

static NSError *error_of(NSInteger code, NSString *text, NSString *cause)
{
    NSMutableDictionary *info = [NSMutableDictionary dictionary];
    [info setObject:text forKey:NSLocalizedDescriptionKey];
    if (cause)
        [info setObject:[NSError errorWithDomain:@"com.apple.appleneuralengine"
                                            code:8
                                        userInfo:[NSDictionary dictionaryWithObject:cause
                                                                             forKey:NSLocalizedDescriptionKey]]
                 forKey:NSUnderlyingErrorKey];
    return [NSError errorWithDomain:@"com.apple.CoreML" code:code userInfo:info];
}

static void set_error(NSError **to, NSInteger code, NSString *text, NSString *cause)
{
    if (to)
        *to = error_of(code, text, cause);
}

static NSString *text_of(const char *s)
{
    return [NSString stringWithUTF8String:s];
}

static void need_macos_15(void)
{
    if (has_word("old-system", NULL))
        [NSException raise:NSInvalidArgumentException format:@"unrecognized selector"];
}

/* ---- arrays ---- */

static size_t bytes_of(MLMultiArrayDataType t)
{
    return t == MLMultiArrayDataTypeFloat16 ? 2 : 4;
}

static NSArray<NSNumber *> *numbers(const int64_t *v, int n)
{
    NSMutableArray<NSNumber *> *list = [NSMutableArray array];
    for (int i = 0; i < n; i++)
        [list addObject:[NSNumber numberWithLongLong:v[i]]];
    return list;
}

/* Strides as the system's own arrays have them: rows begin at multiples of 64 bytes. */
static int64_t padded_strides(int64_t *strides, int rank, const int64_t *dims, size_t elem_bytes)
{
    int64_t unit = (int64_t)(64 / elem_bytes), stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= dims[i];
        if (i == rank - 1 && !has_word("zero-strides", NULL))
            stride = (stride + unit - 1) / unit * unit;
    }
    return stride;
}

static MLMultiArray *padded_array(int rank, const int64_t *dims, MLMultiArrayDataType type)
{
    int64_t strides[MIL_RANK_MAX] = {0}, n = padded_strides(strides, rank, dims, bytes_of(type));
    void *memory = malloc((size_t)n * bytes_of(type) + 64);
    memset(memory, 0xa5, (size_t)n * bytes_of(type) + 64);
    return [[[MLMultiArray alloc] initWithDataPointer:memory
                                                shape:numbers(dims, rank)
                                             dataType:type
                                              strides:numbers(strides, rank)
                                          deallocator:^(void *p) {
                                            memset(p, 0x5a, (size_t)n * bytes_of(type)); /* who reads later sees it */
                                            free(p);
                                          }
                                                error:NULL] autorelease];
}

@implementation MLMultiArray
- (instancetype)initWithDataPointer:(void *)pointer
                              shape:(NSArray<NSNumber *> *)s
                           dataType:(MLMultiArrayDataType)type
                            strides:(NSArray<NSNumber *> *)st
                        deallocator:(void (^)(void *))d
                              error:(NSError **)error
{
    (void)error;
    if (!(self = [super init]))
        return nil;
    data = pointer;
    shape = [s copy];
    strides = [st copy];
    dataType = type;
    deallocator = d ? Block_copy(d) : (void (^)(void *))0;
    NSInteger last = 0;
    for (NSUInteger i = 0; i < [shape count]; i++)
        last += ([[shape objectAtIndex:i] integerValue] - 1) * [[strides objectAtIndex:i] integerValue];
    bytes = (last + 1) * (NSInteger)bytes_of(type);
    return self;
}
- (void)dealloc
{
    if (deallocator) {
        deallocator(data);
        Block_release(deallocator);
    }
    [shape release];
    [strides release];
    [super dealloc];
}
- (NSArray<NSNumber *> *)shape
{
    return shape;
}
- (NSArray<NSNumber *> *)strides
{
    if (!has_word("zero-strides", NULL))
        return strides;
    int64_t zeros[MIL_RANK_MAX] = {0};
    return numbers(zeros, (int)[shape count]);
}
- (MLMultiArrayDataType)dataType
{
    return dataType;
}
- (NSInteger)count
{
    NSInteger n = 1;
    for (NSNumber *x in shape)
        n *= [x integerValue];
    return n;
}
- (void)getBytesWithHandler:(void (^)(const void *, NSInteger))handler
{
    handler(data, bytes);
}
- (void)getMutableBytesWithHandler:(void (^)(void *, NSInteger, NSArray<NSNumber *> *))handler
{
    handler(data, bytes, strides);
}
@end

/* Element by element, by what an array says of itself, apart from how the backend does it. */
static void each_element(MLMultiArray *array, void (^visit)(int64_t i, void *element))
{
    [array getMutableBytesWithHandler:^(void *base, NSInteger size, NSArray<NSNumber *> *strides) {
      int64_t dims[MIL_RANK_MAX] = {0}, steps[MIL_RANK_MAX] = {0}, n = 1;
      int rank = (int)[array.shape count];
      size_t elem_bytes = bytes_of(array.dataType);
      (void)size;
      for (int k = 0; k < rank; k++) {
          dims[k] = [[array.shape objectAtIndex:(NSUInteger)k] integerValue];
          steps[k] = [[strides objectAtIndex:(NSUInteger)k] integerValue];
          n *= dims[k];
      }
      for (int64_t i = 0; i < n; i++) {
          int64_t rest = i, at = 0;
          for (int k = rank; k-- > 0; rest /= dims[k])
              at += rest % dims[k] * steps[k];
          visit(i, (char *)base + (size_t)at * elem_bytes);
      }
    }];
}

/* ---- descriptions ---- */

@implementation MLMultiArrayConstraint
- (id)initWith:(const struct mil_feature *)f
{
    if ((self = [super init])) {
        shape = [numbers(f->shape, f->rank) retain];
        dataType = f->dtype == MIL_FP16   ? MLMultiArrayDataTypeFloat16
                   : f->dtype == MIL_FP32 ? MLMultiArrayDataTypeFloat32
                   : f->dtype == MIL_FP64 ? MLMultiArrayDataTypeDouble
                                          : MLMultiArrayDataTypeInt32;
    }
    return self;
}
- (void)dealloc
{
    [shape release];
    [super dealloc];
}
- (NSArray<NSNumber *> *)shape
{
    return shape;
}
- (MLMultiArrayDataType)dataType
{
    return dataType;
}
@end

@implementation MLFeatureDescription
- (id)initWith:(const struct mil_feature *)f
{
    if ((self = [super init])) {
        name = [text_of(f->name) retain];
        if (f->kind == MIL_FEATURE_ARRAY)
            multiArrayConstraint = [[MLMultiArrayConstraint alloc] initWith:f];
    }
    return self;
}
- (void)dealloc
{
    [name release];
    [multiArrayConstraint release];
    [super dealloc];
}
- (NSString *)name
{
    return name;
}
- (MLMultiArrayConstraint *)multiArrayConstraint
{
    return multiArrayConstraint;
}
@end

static NSDictionary<NSString *, MLFeatureDescription *> *describe(const struct mil_feature *list, int n)
{
    NSMutableDictionary<NSString *, MLFeatureDescription *> *by_name = [NSMutableDictionary dictionary];
    for (int i = 0; i < n; i++) {
        MLFeatureDescription *d = [[[MLFeatureDescription alloc] initWith:&list[i]] autorelease];
        [by_name setObject:d forKey:d.name];
    }
    return by_name;
}

@implementation MLModelDescription
- (id)initWith:(const struct mil_function_description *)d
{
    if ((self = [super init])) {
        inputs = [describe(d->inputs, d->n_inputs) retain];
        outputs = [describe(d->outputs, d->n_outputs) retain];
        states = [describe(d->states, d->n_states) retain];
    }
    return self;
}
- (void)dealloc
{
    [inputs release];
    [outputs release];
    [states release];
    [super dealloc];
}
- (NSDictionary<NSString *, MLFeatureDescription *> *)inputDescriptionsByName
{
    return inputs;
}
- (NSDictionary<NSString *, MLFeatureDescription *> *)outputDescriptionsByName
{
    return outputs;
}
- (NSDictionary<NSString *, MLFeatureDescription *> *)stateDescriptionsByName
{
    need_macos_15();
    return states;
}
@end

/* ---- values, options ---- */

@implementation MLFeatureValue
+ (instancetype)featureValueWithMultiArray:(MLMultiArray *)value
{
    MLFeatureValue *v = [[[self alloc] init] autorelease];
    v->multiArrayValue = [value retain];
    return v;
}
- (void)dealloc
{
    [multiArrayValue release];
    [super dealloc];
}
- (MLMultiArray *)multiArrayValue
{
    return multiArrayValue;
}
@end

@implementation MLModelConfiguration
- (void)dealloc
{
    [functionName release];
    [super dealloc];
}
- (MLComputeUnits)computeUnits
{
    return computeUnits;
}
- (void)setComputeUnits:(MLComputeUnits)units
{
    computeUnits = units;
}
- (NSString *)functionName
{
    return functionName;
}
- (void)setFunctionName:(NSString *)name
{
    need_macos_15();
    [functionName autorelease];
    functionName = [name copy];
}
@end

@implementation MLPredictionOptions
- (void)dealloc
{
    [outputBackings release];
    [super dealloc];
}
- (NSDictionary *)outputBackings
{
    return outputBackings;
}
- (void)setOutputBackings:(NSDictionary *)backings
{
    [outputBackings autorelease];
    outputBackings = [backings copy];
}
@end

@interface StandinOutputs : StandinObject <MLFeatureProvider> {
    NSMutableDictionary<NSString *, MLFeatureValue *> *values;
}
- (void)put:(MLMultiArray *)array named:(NSString *)name;
@end
@implementation StandinOutputs
- (instancetype)init
{
    if ((self = [super init]))
        values = [[NSMutableDictionary alloc] init];
    return self;
}
- (void)dealloc
{
    [values release];
    [super dealloc];
}
- (void)put:(MLMultiArray *)array named:(NSString *)name
{
    [values setObject:[MLFeatureValue featureValueWithMultiArray:array] forKey:name];
}
- (NSSet<NSString *> *)featureNames
{
    return [NSSet setWithArray:[values allKeys]];
}
- (MLFeatureValue *)featureValueForName:(NSString *)name
{
    return [values objectForKey:name];
}
@end

/* ---- what serves ---- */

/* The engine's package of a folder: how states are held depends on all files that share them. */
struct folder {
    struct folder *next;
    char *path;
    struct backend_package *package;
    int n_files, n_users;
    struct mil_model **files;
    char **names;
    int n_declaring; /* functions that declare states: a new state has those of all of them; -1: not opened yet */
    struct backend_function *declaring[64];
};

struct shaped {
    struct shaped *next;
    int64_t dims[MIL_RANK_MAX]; /* of the input that is left open; zeros: there is none */
    struct backend_function *function;
    struct backend_run *run;
};

struct served {
    struct folder *folder;
    const struct mil_model *mil;
    const struct mil_function *function;
    const struct mil_function_description *description;
    MLModelDescription *described;
    struct shaped *shaped;
    long n_predictions;
};

struct state {
    struct folder *folder;
    struct backend_states *states;
    bool in_use;
};

/* Where a model that was compiled came from: its neighbours are there. */
struct origin {
    struct origin *next;
    char *made, *source;
};

static struct folder *folders;
static struct origin *origins;
static struct pool *pool;

static const char *source_of(const char *path)
{
    for (struct origin *o = origins; o; o = o->next)
        if (strcmp(o->made, path) == 0)
            return o->source;
    return path;
}

static bool is_model(const char *name)
{
    return has_suffix(name, ".mlmodelc");
}

static void folder_put(struct folder *f)
{
    if (--f->n_users > 0)
        return;
    struct folder **at = &folders;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    for (int i = 0; i < f->n_declaring; i++)
        backend_engine.function_close(f->declaring[i]);
    backend_engine.close(f->package);
    for (int i = 0; i < f->n_files; i++) {
        mil_model_close(f->files[i]);
        free(f->names[i]);
    }
    free(f->files);
    free(f->names);
    free(f->path);
    free(f);
}

static struct folder *folder_get(const char *model, struct err *e)
{
    char *path = path_folder(model);
    struct path_list list = {0};
    struct folder *f = folders;
    bool ok = true;
    while (f && strcmp(f->path, path) != 0)
        f = f->next;
    if (!f) {
        f = xcalloc(1, sizeof *f);
        f->path = xstrdup(path);
        f->next = folders;
        f->n_declaring = -1;
        folders = f;
        ok = backend_engine.open(&f->package, &(struct backend_options){0}, e) &&
             path_list_read(&list, path[0] ? path : ".", e);
        f->files = xcalloc((size_t)list.n + 1, sizeof *f->files);
        f->names = xcalloc((size_t)list.n + 1, sizeof *f->names);
        for (int i = 0; ok && i < (int)list.n; i++) {
            char *file = path_join(path, list.names[i]), *other = xstrdup(file);
            if (has_suffix(other, ".mlpackage"))
                strcpy(other + strlen(other) - 10, ".mlmodelc");
            bool is_first = is_model(file) || (has_suffix(file, ".mlpackage") && !path_exists(other));
            free(other);
            if (is_first && mil_model_open(&f->files[f->n_files], file, 0, NULL)) {
                backend_engine.add_program(f->package, f->files[f->n_files]);
                f->names[f->n_files++] = xstrdup(list.names[i]);
            }
            free(file);
        }
    }
    path_list_free(&list);
    free(path);
    f->n_users++;
    if (!ok) {
        folder_put(f);
        f = NULL;
    }
    return f;
}

int standin_end(void)
{
    int n_left = 0;
    pool_free(pool);
    pool = NULL;
    for (struct origin *o = origins, *next; o; o = next) {
        next = o->next;
        n_left += path_exists(o->made);
        free(o->made);
        free(o->source);
        free(o);
    }
    origins = NULL;
    standin_set(NULL);
    return n_left;
}

static void open_declaring(struct folder *f)
{
    struct err e = {0};
    f->n_declaring = 0;
    for (int i = 0; i < f->n_files; i++)
        for (int k = 0; k < f->files[i]->program->n_functions && f->n_declaring < 64; k++) {
            const struct mil_function *function = f->files[i]->program->functions[k];
            const struct backend_source source = {.mil = f->files[i], .path = f->files[i]->path};
            bool declares = false;
            for (int j = 0; j < function->n_inputs; j++)
                declares = declares || function->inputs[j]->type->kind == MIL_TYPE_STATE;
            if (declares && backend_engine.function_open(&f->declaring[f->n_declaring], f->package, &source,
                                                         function->name, NULL, 0, &e))
                f->n_declaring++;
        }
}

static MLMultiArrayDataType held_type(const struct backend_state *s)
{
    return s->elem_bytes == 4 && !has_word("half-states", NULL) ? MLMultiArrayDataTypeFloat32
                                                                 : MLMultiArrayDataTypeFloat16;
}

@implementation MLState
- (void)dealloc
{
    struct state *s = states;
    pthread_mutex_lock(&lock);
    backend_engine.states_free(s->states);
    folder_put(s->folder);
    pthread_mutex_unlock(&lock);
    free(s);
    [super dealloc];
}
- (void)serve:(void *)s
{
    states = s;
}
- (void *)served
{
    return states;
}
- (void)getMultiArrayForStateNamed:(NSString *)stateName handler:(void (^)(MLMultiArray *))handler
{
    struct state *s = states;
    int i = backend_find_state(s->states, [stateName UTF8String]);
    if (has_word("raise-state", NULL))
        [NSException raise:NSGenericException format:@"the state is not there"];
    if (i < 0)
        [NSException raise:NSInvalidArgumentException format:@"no state %@", stateName];
    if (s->in_use)
        [NSException raise:NSGenericException format:@"the state is in use"];
    const struct backend_state *state = &s->states->list[i];
    MLMultiArrayDataType type = held_type(state);
    bool is_held = state->elem_bytes > 0, is_exact = bytes_of(type) == (size_t)state->elem_bytes;
    char *flat = calloc((size_t)state->n_elems + 1, 4);
    MLMultiArray *view = padded_array(state->rank, state->dims, type);
    if (is_held && is_exact)
        backend_engine.state_read(s->states, i, 0, backend_state_bytes(state), flat);
    else if (is_held)
        backend_engine.state_get(s->states, i, (f16 *)(void *)flat);
    each_element(view, ^(int64_t k, void *element) {
      memcpy(element, flat + (size_t)k * bytes_of(type), bytes_of(type));
    });
    s->in_use = true;
    handler(view);
    s->in_use = false;
    __block bool has_changed = false;
    each_element(view, ^(int64_t k, void *element) {
      char *at = flat + (size_t)k * bytes_of(type);
      has_changed = has_changed || memcmp(at, element, bytes_of(type)) != 0;
      memcpy(at, element, bytes_of(type));
      memset(element, 0xff, bytes_of(type)); /* the view has ended */
    });
    if (has_changed && is_held && is_exact)
        backend_engine.state_write(s->states, i, 0, backend_state_bytes(state), flat);
    else if (has_changed && is_held)
        backend_engine.state_set(s->states, i, (const f16 *)(const void *)flat);
    free(flat);
}
@end

@implementation MLModel
+ (NSURL *)compileModelAtURL:(NSURL *)modelURL error:(NSError **)error
{
    char template[] = "standin-XXXXXX";
    struct err e = {0};
    char *to = NULL;
    NSURL *made = nil;
    if (mkdtemp(template)) {
        rmdir(template);
        to = xasprintf("%s.mlmodelc", template);
        if (mil_compile([[modelURL path] UTF8String], to, false, &e)) {
            made = [NSURL fileURLWithPath:text_of(to)];
            struct origin *o = xcalloc(1, sizeof *o);
            pthread_mutex_lock(&lock);
            *o = (struct origin){origins, xstrdup([[made path] UTF8String]), xstrdup([[modelURL path] UTF8String])};
            origins = o;
            pthread_mutex_unlock(&lock);
        }
    }
    if (!made)
        set_error(error, 3, text_of(e.msg), nil);
    free(to);
    return made;
}
+ (MLModel *)modelWithContentsOfURL:(NSURL *)url
                      configuration:(MLModelConfiguration *)configuration
                              error:(NSError **)error
{
    const char *path = [[url path] UTF8String];
    struct err e = {0};
    if (!is_model(path) || !path_is_folder(path)) {
        set_error(error, 3, @"Unable to load model: expected a compiled model", nil);
        return nil;
    }
    if (has_word("fail-load", NULL)) {
        set_error(error, 0, @"Failed to build the model execution plan using a model architecture file with "
                            @"error code: -14.",
                  @"ANECCompile() FAILED (11)");
        return nil;
    }
    pthread_mutex_lock(&lock);
    const char *source = source_of(path);
    struct folder *folder = folder_get(source, &e);
    char *base = path_base(source);
    struct served *s = calloc(1, sizeof *s);
    for (int i = 0; folder && i < folder->n_files; i++)
        if (strcmp(folder->names[i], base) == 0)
            s->mil = folder->files[i];
    free(base);
    const char *name = [configuration.functionName UTF8String];
    s->folder = folder;
    if (s->mil) {
        name = name ? name : mil_default_function_name(s->mil);
        s->function = mil_function_find(s->mil, name);
        s->description = mil_function_description_find(s->mil, name);
    }
    MLModel *m = nil;
    if (s->function && s->description) {
        m = [[[self alloc] init] autorelease];
        s->described = [[MLModelDescription alloc] initWith:s->description];
        m->served = s;
    } else {
        if (folder)
            folder_put(folder);
        set_error(error, 0, s->mil ? @"no such function" : text_of(e.code ? e.msg : "not a model"), nil);
        free(s);
    }
    pthread_mutex_unlock(&lock);
    return m;
}
- (void)dealloc
{
    struct served *s = served;
    pthread_mutex_lock(&lock);
    for (struct shaped *x = s->shaped, *next; x; x = next) {
        next = x->next;
        backend_engine.run_close(x->run);
        backend_engine.function_close(x->function);
        free(x);
    }
    folder_put(s->folder);
    pthread_mutex_unlock(&lock);
    [s->described release];
    free(s);
    [super dealloc];
}
- (MLModelDescription *)modelDescription
{
    return ((struct served *)served)->described;
}

/* The function for the shapes that the features have. */
- (struct shaped *)shapedFor:(id<MLFeatureProvider>)input error:(NSError **)error
{
    struct served *s = served;
    struct mil_input_shape shape = {0};
    struct err e = {0};
    for (int i = 0; i < s->description->n_inputs; i++) {
        const struct mil_feature *f = &s->description->inputs[i];
        MLMultiArray *a = [input featureValueForName:text_of(f->name)].multiArrayValue;
        MLMultiArrayConstraint *want =
            [[s->described.inputDescriptionsByName objectForKey:text_of(f->name)] multiArrayConstraint];
        bool is_open = f->n_enumerated > 0 || f->n_ranges > 0, fits = a && [a.shape count] == (NSUInteger)f->rank;
        if (!a) {
            set_error(error, 1,
                      [NSString stringWithFormat:@"Feature %s is required but not specified.", f->name], nil);
            return NULL;
        }
        for (int k = 0; fits && k < f->rank; k++) {
            int64_t d = [[a.shape objectAtIndex:(NSUInteger)k] integerValue];
            fits = is_open || d == f->shape[k];
            if (is_open)
                shape.dims[k] = d;
        }
        if (!fits || a.dataType != want.dataType) {
            set_error(error, 1,
                      [NSString stringWithFormat:@"MultiArray shape for feature '%s' does not match the shape "
                                                 @"specified in the model description.",
                                                 f->name],
                      nil);
            return NULL;
        }
        if (is_open) {
            shape.input = f->name;
            shape.rank = f->rank;
        }
    }
    struct shaped *x = s->shaped;
    while (x && memcmp(x->dims, shape.dims, sizeof x->dims) != 0)
        x = x->next;
    if (x)
        return x;
    const struct backend_source source = {.mil = s->mil, .path = s->mil->path};
    x = calloc(1, sizeof *x);
    memcpy(x->dims, shape.dims, sizeof x->dims);
    if ((!pool && !pool_new(&pool, 1, &e)) ||
        !backend_engine.function_open(&x->function, s->folder->package, &source, s->function->name, &shape,
                                      shape.input ? 1 : 0, &e) ||
        !backend_engine.run_open(&x->run, x->function, pool, NULL, &e)) {
        set_error(error, 0, text_of(e.msg), nil);
        backend_engine.function_close(x->function);
        free(x);
        return NULL;
    }
    x->next = s->shaped;
    s->shaped = x;
    return x;
}

static void load(MLMultiArray *a, void *to)
{
    each_element(a, ^(int64_t i, void *element) {
      if (a.dataType == MLMultiArrayDataTypeFloat16) {
          f16 half;
          memcpy(&half, element, sizeof half);
          ((float *)to)[i] = f16_to_f32(half);
      } else {
          memcpy((char *)to + 4 * i, element, 4);
      }
    });
}

static void store(const void *from, MLMultiArray *a)
{
    each_element(a, ^(int64_t i, void *element) {
      if (a.dataType == MLMultiArrayDataTypeFloat16) {
          f16 half = f32_to_f16(((const float *)from)[i]);
          memcpy(element, &half, sizeof half);
      } else {
          memcpy(element, (const char *)from + 4 * i, 4);
      }
    });
}

- (id<MLFeatureProvider>)predict:(id<MLFeatureProvider>)input
                           state:(MLState *)state
                         options:(MLPredictionOptions *)options
                           error:(NSError **)error
{
    struct served *s = served;
    struct state *in_state = state ? [state served] : NULL;
    struct err e = {0};
    long every = 0, n = __atomic_fetch_add(&n_predictions, 1, __ATOMIC_SEQ_CST) + 1;
    if (has_word("die", NULL))
        _exit(137);
    if (has_word("raise", NULL))
        [NSException raise:NSInternalInconsistencyException format:@"E5RT: something is wrong"];
    if (has_word("fail-predict", NULL) || (has_word("fail-every", &every) && every > 0 && n % every == 0)) {
        set_error(error, 0, @"Unable to compute the prediction using ML Program.",
                  @"ANEProgramProcessRequestDirect() Failed with status=0x1d");
        return nil;
    }
    if (has_word("no-backings", NULL) && [options.outputBackings count] > 0) {
        set_error(error, 7, @"The output backing is not supported.", nil);
        return nil;
    }
    if (s->description->n_states > 0 && !state) {
        set_error(error, 0, @"The model needs a state.", nil);
        return nil;
    }
    if (in_state && in_state->folder != s->folder) {
        set_error(error, 0, @"The state was made by another model.", nil);
        return nil;
    }
    if (in_state && in_state->in_use)
        [NSException raise:NSGenericException format:@"the state is in use"];
    struct shaped *x = [self shapedFor:input error:error];
    if (!x)
        return nil;
    for (int i = 0; i < x->function->n_inputs; i++)
        load([input featureValueForName:text_of(x->function->inputs[i].name)].multiArrayValue,
             backend_engine.run_input(x->run, i));
    if (in_state && !backend_engine.states_add(in_state->states, x->function, &e)) {
        set_error(error, 0, text_of(e.msg), nil);
        return nil;
    }
    if (!backend_engine.run_execute(x->run, in_state ? in_state->states : NULL, &e)) {
        set_error(error, 0, text_of(e.msg), nil);
        return nil;
    }
    StandinOutputs *out = [[[StandinOutputs alloc] init] autorelease];
    bool uses_backings = s->n_predictions++ % 2 == 0;
    for (int i = 0; i < x->function->n_outputs; i++) {
        const struct mil_port *port = &x->function->outputs[i];
        NSString *name = text_of(port->name);
        MLMultiArrayDataType type =
            [[s->described.outputDescriptionsByName objectForKey:name] multiArrayConstraint].dataType;
        MLMultiArray *to = uses_backings ? [options.outputBackings objectForKey:name] : nil;
        __atomic_fetch_add(to ? &n_backings_used : &n_padded, 1, __ATOMIC_SEQ_CST);
        if (!to)
            to = padded_array(port->rank, port->dims, type);
        store(backend_engine.run_output(x->run, i), to);
        [out put:to named:name];
    }
    return out;
}

/* One prediction at a time, as one process has it. */
- (id<MLFeatureProvider>)predictAlone:(id<MLFeatureProvider>)input
                                state:(MLState *)state
                              options:(MLPredictionOptions *)options
                                error:(NSError **)error
{
    id<MLFeatureProvider> found = nil;
    NSException *raised = nil;
    pthread_mutex_lock(&lock);
    @try {
        found = [self predict:input state:state options:options error:error];
    } @catch (NSException *x) {
        raised = x;
    }
    pthread_mutex_unlock(&lock);
    [raised raise];
    return found;
}
- (id<MLFeatureProvider>)predictionFromFeatures:(id<MLFeatureProvider>)input
                                        options:(MLPredictionOptions *)options
                                          error:(NSError **)error
{
    return [self predictAlone:input state:nil options:options error:error];
}
- (id<MLFeatureProvider>)predictionFromFeatures:(id<MLFeatureProvider>)input
                                     usingState:(MLState *)state
                                        options:(MLPredictionOptions *)options
                                          error:(NSError **)error
{
    need_macos_15();
    return [self predictAlone:input state:state options:options error:error];
}
- (MLState *)newState
{
    struct served *s = served;
    struct state *state = calloc(1, sizeof *state);
    struct err e = {0};
    need_macos_15();
    pthread_mutex_lock(&lock);
    state->folder = s->folder;
    s->folder->n_users++;
    if (s->folder->n_declaring < 0)
        open_declaring(s->folder);
    state->states = backend_engine.states_new(s->folder->package);
    for (int i = 0; i < s->folder->n_declaring; i++)
        (void)!backend_engine.states_add(state->states, s->folder->declaring[i], &e);
    pthread_mutex_unlock(&lock);
    MLState *made = [[MLState alloc] init];
    [made serve:state];
    return made;
}
@end

/* ---- plans ---- */

@implementation MLCPUComputeDevice
@end
@implementation MLGPUComputeDevice
@end
@implementation MLNeuralEngineComputeDevice
@end

@implementation MLModelStructureProgramNamedValueType
- (id)initWith:(NSString *)s
{
    if ((self = [super init]))
        name = [s retain];
    return self;
}
- (void)dealloc
{
    [name release];
    [super dealloc];
}
- (NSString *)name
{
    return name;
}
@end

/* What the engine takes is planned there, whether it pays or not: test models are too small for it to pay. */
static bool takes_part(const struct place_op *x)
{
    return !x->is_prologue && isfinite(x->ms_on_engine);
}

@implementation MLModelStructureProgramOperation
- (id)initWith:(const struct mil_op *)op of:(const char *)opset placed:(const struct place_op *)placed total:(double)ms
{
    if ((self = [super init])) {
        NSMutableArray *list = [NSMutableArray array];
        for (int i = 0; i < op->n_outputs; i++)
            [list addObject:[[[MLModelStructureProgramNamedValueType alloc]
                                initWith:text_of(op->outputs[i]->name)] autorelease]];
        outputs = [list retain];
        blocks = [[NSArray array] retain];
        operatorName = [[NSString stringWithFormat:@"%s.%s", opset, op->type] retain];
        cost = -1;
        if (placed) {
            onEngine = takes_part(placed);
            cost = (onEngine ? placed->ms_on_engine : placed->ms_on_processor) / ms;
        }
    }
    return self;
}
- (void)dealloc
{
    [outputs release];
    [blocks release];
    [operatorName release];
    [super dealloc];
}
- (NSString *)operatorName
{
    return operatorName;
}
- (NSArray<MLModelStructureProgramNamedValueType *> *)outputs
{
    return outputs;
}
- (NSArray<MLModelStructureProgramBlock *> *)blocks
{
    return blocks;
}
- (BOOL)onEngine
{
    return onEngine;
}
- (double)cost
{
    return cost;
}
@end

@implementation MLModelStructureProgramBlock
- (id)initWith:(const struct mil_function *)f
{
    if ((self = [super init])) {
        const struct chip *chip = NULL;
        struct placement p = {0};
        struct err e = {0};
        double all = 0;
        NSMutableArray *list = [NSMutableArray array];
        if (chip_find(&chip, "M4", &e))
            place_function(&p, f, chip);
        for (int i = 0; i < p.n_ops; i++)
            all += takes_part(&p.ops[i]) ? p.ops[i].ms_on_engine : p.ops[i].ms_on_processor;
        for (int i = 0; i < f->block->n_ops; i++) {
            const struct place_op *placed = NULL;
            for (int k = 0; k < p.n_ops && !placed; k++)
                placed = p.ops[k].op == f->block->ops[i] ? &p.ops[k] : NULL;
            [list addObject:[[[MLModelStructureProgramOperation alloc] initWith:f->block->ops[i]
                                                                             of:"ios18"
                                                                         placed:placed
                                                                          total:all > 0 ? all : 1] autorelease]];
        }
        placement_fini(&p);
        operations = [list retain];
    }
    return self;
}
- (void)dealloc
{
    [operations release];
    [super dealloc];
}
- (NSArray<MLModelStructureProgramOperation *> *)operations
{
    return operations;
}
@end

@implementation MLModelStructureProgramFunction
- (id)initWith:(const struct mil_function *)f
{
    if ((self = [super init]))
        block = [[MLModelStructureProgramBlock alloc] initWith:f];
    return self;
}
- (void)dealloc
{
    [block release];
    [super dealloc];
}
- (MLModelStructureProgramBlock *)block
{
    return block;
}
@end

@implementation MLModelStructureProgram
- (id)initWith:(const struct mil_program *)p
{
    if ((self = [super init])) {
        NSMutableDictionary *list = [NSMutableDictionary dictionary];
        for (int i = 0; i < p->n_functions; i++)
            [list setObject:[[[MLModelStructureProgramFunction alloc] initWith:p->functions[i]] autorelease]
                     forKey:text_of(p->functions[i]->name)];
        functions = [list retain];
    }
    return self;
}
- (void)dealloc
{
    [functions release];
    [super dealloc];
}
- (NSDictionary<NSString *, MLModelStructureProgramFunction *> *)functions
{
    return functions;
}
@end

@implementation MLModelStructure
- (id)initWith:(const struct mil_program *)p
{
    if ((self = [super init]))
        program = [[MLModelStructureProgram alloc] initWith:p];
    return self;
}
- (void)dealloc
{
    [program release];
    [super dealloc];
}
- (MLModelStructureProgram *)program
{
    return program;
}
@end

@implementation MLComputePlanDeviceUsage
- (id)initOnEngine:(BOOL)onEngine
{
    if ((self = [super init])) {
        id processor = [[[MLCPUComputeDevice alloc] init] autorelease];
        id engine = [[[MLNeuralEngineComputeDevice alloc] init] autorelease];
        supportedComputeDevices =
            [(onEngine ? [NSArray arrayWithObjects:processor, engine, nil] : [NSArray arrayWithObject:processor])
                retain];
        preferredComputeDevice = [(onEngine ? engine : processor) retain];
    }
    return self;
}
- (void)dealloc
{
    [supportedComputeDevices release];
    [preferredComputeDevice release];
    [super dealloc];
}
- (NSArray *)supportedComputeDevices
{
    return supportedComputeDevices;
}
- (id)preferredComputeDevice
{
    return preferredComputeDevice;
}
@end

@implementation MLComputePlanCost
- (id)initWith:(double)x
{
    if ((self = [super init]))
        weight = x;
    return self;
}
- (double)weight
{
    return weight;
}
@end

@implementation MLComputePlan
- (void)dealloc
{
    [modelStructure release];
    [super dealloc];
}
+ (void)loadContentsOfURL:(NSURL *)url
            configuration:(MLModelConfiguration *)configuration
        completionHandler:(void (^)(MLComputePlan *, NSError *))handler
{
    struct err e = {0};
    struct mil_model *m = NULL;
    const char *path = [[url path] UTF8String];
    (void)configuration;
    if (!is_model(path))
        abort();
    MLComputePlan *plan = nil;
    if (mil_model_open(&m, path, MIL_OPEN_NO_WEIGHTS, &e)) {
        plan = [[[self alloc] init] autorelease];
        plan->modelStructure = [[MLModelStructure alloc] initWith:m->program];
    }
    handler(plan, plan ? nil : error_of(3, text_of(e.msg), nil));
    mil_model_close(m);
}
- (MLModelStructure *)modelStructure
{
    return modelStructure;
}
- (MLComputePlanDeviceUsage *)computeDeviceUsageForMLProgramOperation:(MLModelStructureProgramOperation *)op
{
    return [op cost] < 0 ? nil : [[[MLComputePlanDeviceUsage alloc] initOnEngine:[op onEngine]] autorelease];
}
- (MLComputePlanCost *)estimatedCostOfMLProgramOperation:(MLModelStructureProgramOperation *)op
{
    return [op cost] < 0 ? nil : [[[MLComputePlanCost alloc] initWith:[op cost]] autorelease];
}
@end
