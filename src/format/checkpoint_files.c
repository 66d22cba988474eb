/* The files beside the weights from which text becomes ids and messages become text, for those who copy them and those
 * who read them. */
#include "format/checkpoint.h"

const struct checkpoint_file checkpoint_files[] = {
    {CHECKPOINT_TOKENIZER, CHECKPOINT_COPIED},
    {CHECKPOINT_TOKENIZER_CONFIG, CHECKPOINT_SETTINGS},
    {CHECKPOINT_SPECIAL_TOKENS, CHECKPOINT_SETTINGS},
    {CHECKPOINT_ADDED_TOKENS, CHECKPOINT_SETTINGS},
    {CHECKPOINT_TEMPLATE, CHECKPOINT_COPIED},
    {CHECKPOINT_TEMPLATE_JSON, CHECKPOINT_SETTINGS},
    {CHECKPOINT_TEMPLATES, CHECKPOINT_TEMPLATE_FOLDER},
    {CHECKPOINT_GENERATION, CHECKPOINT_COPIED},
    /* For other readers: what tokenizer.json was made from, and settings of processors that hold a template or texts
     * that it needs. */
    {"tokenizer.model", CHECKPOINT_COPIED},
    {"vocab.json", CHECKPOINT_COPIED},
    {"merges.txt", CHECKPOINT_COPIED},
    {"preprocessor_config.json", CHECKPOINT_COPIED},
    {"video_preprocessor_config.json", CHECKPOINT_COPIED},
    {"processor_config.json", CHECKPOINT_COPIED},
    {NULL, CHECKPOINT_COPIED},
};
