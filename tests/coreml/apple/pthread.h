typedef struct {
    long sig;
    char opaque[56];
} pthread_mutex_t;
typedef struct {
    long sig;
    char opaque[40];
} pthread_cond_t;
#define PTHREAD_MUTEX_INITIALIZER                                                                            \
    {                                                                                                        \
        0x32AAABA7,                                                                                          \
        {                                                                                                    \
            0                                                                                                \
        }                                                                                                    \
    }
#define PTHREAD_COND_INITIALIZER                                                                             \
    {                                                                                                        \
        0x3CB0B1BB,                                                                                          \
        {                                                                                                    \
            0                                                                                                \
        }                                                                                                    \
    }
int pthread_mutex_lock(pthread_mutex_t *m);
int pthread_mutex_unlock(pthread_mutex_t *m);
int pthread_cond_signal(pthread_cond_t *c);
int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
