/* The models that are served, by name: opened when they are first asked for, closed again when too many are open.
 */
#ifndef MILKIT_SERVER_MODELS_H
#define MILKIT_SERVER_MODELS_H

#include "base/log.h"
#include "server/scheduler.h"
#include "server/server.h"

struct models;
/* Nothing is opened yet. */
struct models *models_new(const struct server_options *o);
/* Ends all work, which gets `grace` seconds. */
void models_stop(struct models *m, double grace_seconds);
void models_free(struct models *m);

struct model;
/* The model of a name (NULL or unknown: the first one, unless names are strict), open, and kept open until models_give_back. */
bool models_take(struct models *m, const char *name, struct model **out, struct problem *p) MUST_CHECK;
void models_give_back(struct models *m, struct model *model);
/* Why a model could not be opened. */
const struct err *models_error(const struct models *m);
int models_count(const struct models *m);
const char *models_name(const struct models *m, int i);
const char *models_path(const struct models *m, int i);
/* The index of a name; -1: there is none. */
int models_find(const struct models *m, const char *name);
/* Kept open as by models_take; NULL while it is not open. */
struct model *models_take_open(struct models *m, int i);
/* Longest time without a step of a model that has work. */
double models_stalled_seconds(struct models *m);

const char *model_name(const struct model *model);
struct scheduler *model_scheduler(struct model *model);
const mk_package *model_package(const struct model *model);
/* The same as long as results are. */
const char *model_fingerprint(const struct model *model);
long long model_opened(const struct model *model); /* seconds since 1970 */
/* Does the package say how it wants to be sampled? */
bool model_is_recommended(const struct model *model);

#endif
