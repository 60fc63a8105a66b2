#define _GNU_SOURCE
#include "CShims.h"

#include <pthread.h>
#include <string.h>

void shim_set_thread_name(const char *name) {
#ifdef __APPLE__
  pthread_setname_np(name);
#else
  char cut[16];
  strncpy(cut, name, sizeof cut - 1);
  cut[sizeof cut - 1] = 0;
  pthread_setname_np(pthread_self(), cut);
#endif
}
