/* What the classes of transformers 5 do that no file of a checkpoint says: which one reads a tokenizer, the special tokens
 * that it fills in, and the parts that it builds by itself in the place of those of tokenizer.json.
 */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "tokenizer/tokenizer_internal.h"

#define END_OF_TEXT "<|endoftext|>"

/* Names in the order bos, eos, unk, sep, pad, cls, mask. The infill tokens of Code Llama are left out: its tokenizers that
 * have them name them. */
static const struct tokenizer_class classes[] = {
    {"Qwen2Tokenizer", PREFIX_OF_BYTES, {NULL, END_OF_TEXT, END_OF_TEXT, NULL, END_OF_TEXT, NULL, NULL}},
    {"Qwen3_5Tokenizer", PREFIX_OF_BYTES, {NULL, END_OF_TEXT, END_OF_TEXT, NULL, END_OF_TEXT, NULL, NULL}},
    {"GPT2Tokenizer", PREFIX_OF_BYTES, {END_OF_TEXT, END_OF_TEXT, END_OF_TEXT, NULL, NULL, NULL, NULL}},
    {"CodeGenTokenizer", PREFIX_OF_BYTES, {END_OF_TEXT, END_OF_TEXT, END_OF_TEXT, NULL, NULL, NULL, NULL}},
    {"GPTNeoXTokenizer",
     PREFIX_OF_BYTES,
     {END_OF_TEXT, END_OF_TEXT, END_OF_TEXT, NULL, "<|padding|>", NULL, NULL}},
    {"RobertaTokenizer", PREFIX_OF_BYTES, {"<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"}},
    {"CohereTokenizer",
     PREFIX_OF_BYTES,
     {"<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", "<UNK>", "<SEP>", "<PAD>", "<CLS>", "<MASK_TOKEN>"}},
    {"GemmaTokenizer", PREFIX_OF_FILE, {"<bos>", "<eos>", "<unk>", NULL, "<pad>", NULL, "<mask>"}},
    {"LlamaTokenizer", PREFIX_OF_BLANKS, {"<s>", "</s>", "<unk>", NULL, NULL, NULL, NULL}},
    {"CodeLlamaTokenizer", PREFIX_OF_CODE_BLANKS, {"<s>", "</s>", "<unk>", NULL, NULL, NULL, NULL}},
};

/* The class of a kind of model counts where none is declared; where another one is and the kind is known to be declared
 * wrongly; and, being NULL, the file as it is, where another one is. */
static const struct {
    const char *model_type, *class;
    bool overrides;
} kinds[] = {
    {"qwen2", "Qwen2Tokenizer", true},
    {"qwen3", "Qwen2Tokenizer", false},
    {"qwen3_moe", "Qwen2Tokenizer", false},
    {"qwen3_5", "Qwen3_5Tokenizer", true},
    {"qwen3_5_text", "Qwen3_5Tokenizer", false},
    {"qwen3_5_moe", "Qwen3_5Tokenizer", true},
    {"qwen3_5_moe_text", "Qwen3_5Tokenizer", true},
    {"gemma3", "GemmaTokenizer", false},
    {"gemma3_text", "GemmaTokenizer", false},
    {"mistral", NULL, true},
};

const struct tokenizer_class *tokenizer_class_find(const char *declared, const char *model_type)
{
    static const struct tokenizer_class of_file;
    const char *name = declared;
    for (size_t i = 0; model_type && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(model_type, kinds[i].model_type) == 0 && (!declared || kinds[i].overrides))
            name = kinds[i].class;
    size_t n = name ? strlen(name) : 0;
    if (name && has_suffix(name, "Fast"))
        n -= strlen("Fast");
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (n == strlen(classes[i].name) && memcmp(name, classes[i].name, n) == 0)
            return &classes[i];
    return &of_file;
}

char *tokenizer_class_parts(const struct tokenizer_class *class, bool adds_prefix, bool is_legacy)
{
    bool is_code = class->prefix == PREFIX_OF_CODE_BLANKS;
    const char *scheme = !adds_prefix ? "never" : is_legacy && !is_code ? "always" : "first";
    return xasprintf("{\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\u2581\", "
                     "\"prepend_scheme\": \"%s\", \"split\": false}, \"decoder\": {\"type\": \"Sequence\", "
                     "\"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": \"\u2581\"}, "
                     "\"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}%s]}}",
                     scheme,
                     adds_prefix || is_code
                         ? ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}"
                         : "");
}
