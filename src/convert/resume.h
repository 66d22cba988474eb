/* What an interrupted conversion leaves for the next one: finished parts and a journal of what is in them.
 * Internal to convert.
 *
 * The work folder has a name made from the settings and the checkpoint, so a run finds only work that would
 * give the same bytes. The journal lists the files of each finished part with size and hash; a part is taken
 * over when its folders hold just these.
 */
#ifndef MILKIT_CONVERT_RESUME_H
#define MILKIT_CONVERT_RESUME_H

#include "convert/parts.h"

/* 16 hex digits of everything that the output depends on. */
bool convert_work_key(char key[17], const struct convert_options *o, const struct quant_choices *choices,
                      const struct arch_model *m, const char *prefix, struct err *e) MUST_CHECK;

struct convert_journal;
#define CONVERT_JOURNAL_NAME ".finished.json"
/* Reads the journal of the folder; none, or one that can't be read, is an empty one. */
struct convert_journal *convert_journal_open(const char *folder);
void convert_journal_close(struct convert_journal *j); /* accepts NULL */
int convert_journal_parts(const struct convert_journal *j);
/* Is this part there, whole? Then it becomes done, with the report of the run that wrote it. */
bool convert_journal_take(const struct convert_journal *j, struct convert_part *p,
                          enum convert_format format);
/* Notes a finished part, on disk when this returns. */
bool convert_journal_add(struct convert_journal *j, const struct convert_part *p, enum convert_format format,
                         struct err *e) MUST_CHECK;
/* Removes the journal's file: the package is complete. */
bool convert_journal_remove(const struct convert_journal *j, struct err *e) MUST_CHECK;

#endif
