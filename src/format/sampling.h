/* The sampling that a model's makers recommend: generation_config.json of a checkpoint, recommended_sampling of a
 * package's meta.yaml.
 *
 * A recommendation never stops a package: a value of another type or out of range is told to the caller and counts as
 * absent.
 */
#ifndef MILKIT_FORMAT_SAMPLING_H
#define MILKIT_FORMAT_SAMPLING_H

#include "format/json.h"

#define SAMPLING_IDS_MAX 8192 /* of one list, so that a hostile one costs little with each token */

/* Ids one behind the other that must not be generated. */
struct token_sequence {
    int n;
    int32_t *ids; /* [n] */
};

struct recommended_sampling {
    bool is_present; /* there is at least one of these keys, good or bad */
    bool do_sample;
    double temperature, top_p, min_p; /* these and the penalties: NaN when absent */
    double repetition_penalty, presence_penalty, frequency_penalty;
    int64_t top_k; /* -1: absent, 0: off */
    int n_suppressed;
    int32_t *suppressed; /* suppress_tokens */
    int n_bad_words;
    struct token_sequence *bad_words; /* bad_words_ids */
};

/* The ranges, which are the sampler's too. top_p is above 0, repetition_penalty too. */
#define SAMPLING_TEMPERATURE_MAX 100.0
#define SAMPLING_PENALTY_MAX 100.0 /* also of the magnitude of presence and frequency penalties */

/* Takes one sentence about a value that is left out. */
typedef void (*sampling_warn_fn)(void *context, const char *sentence);

void sampling_init(struct recommended_sampling *s); /* everything absent */
void sampling_fini(struct recommended_sampling *s);
/* Reads the keys of an object into s, which sampling_init made; where: for messages. */
void sampling_read(struct recommended_sampling *s, const cJSON *object, const char *where,
                   sampling_warn_fn warn, void *context);
/* The ids that end a text, of a generation_config.json or config.json (or a part of it): eos_token_id, one id or a list;
 * null and -1 are none. What is anything else, there or in bos_token_id and pad_token_id, gets a sentence. add may be
 * NULL. */
void sampling_read_stops(const cJSON *object, const char *where, void (*add)(void *context, int32_t id),
                         sampling_warn_fn warn, void *context);
/* Is it a key that sampling_read reads? */
bool sampling_knows(const char *key);
/* A generation_config.json. NaN and infinities, which Python writes into JSON, are read as numbers out of any range. */
bool sampling_read_json_file(cJSON **out, const char *path, struct err *e) MUST_CHECK;
/* Appends the names of keys that would change what transformers generates, are set to something else than their neutral
 * value, and have no effect here: "a, b". */
void sampling_put_unused(const cJSON *object, struct buf *out);
/* Appends "{do_sample: true, temperature: 0.6, ...}", what is present only: YAML in one line. */
void sampling_put_yaml(const struct recommended_sampling *s, struct buf *out);

#endif
