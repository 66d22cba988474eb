/* The hints of errors and warnings as options of commands. */
#include "cli/cli.h"

const char *cli_hint_text(enum err_hint hint)
{
    switch (hint) {
    case HINT_REPLACE:
        return "; give another name, or --force to replace it";
    case HINT_RESUME:
        return ", --resume goes on with them";
    case HINT_PARTS:
        return " (--only)";
    case HINT_CHUNKS:
        return " (--chunks auto splits)";
    case HINT_SPLIT_HEAD:
        return " (--split-head makes the parts smaller)";
    case HINT_PALETTES:
        return " (--lut-embeddings, --lut-ffn, --lut-head)";
    case HINT_CALIBRATION_IDS:
        return " (--calibration @FILE)";
    case HINT_RESIDUAL_SCALE:
        return "; milkit convert --residual-scale scales the residual stream";
    case HINT_KMEANS:
        return " (--lut-method kmeans: without)";
    case HINT_NO_VERIFY:
        return " (--no-verify leaves this out)";
    case HINT_CHECK_LAYERS:
        return " (milkit check --layers finds where)";
    case HINT_CONVERT:
        return " (run milkit convert on it first)";
    case HINT_NONE:
    case HINT_COUNT:
        break;
    }
    return "";
}
