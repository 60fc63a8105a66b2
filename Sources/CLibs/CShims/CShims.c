#define _GNU_SOURCE
#include "CShims.h"

#include <pthread.h>
#include <string.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

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

int shim_prctl_not_dumpable(void) {
#ifdef __linux__
  return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
#else
  return -1;
#endif
}
