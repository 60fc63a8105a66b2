// The upper bound for Postgres: claims and settles everything in an outbox, as the gateway does, in C and without
// sending anything. The pipeline is compared with it.
//
//   SQLFloor [--connections N] [--batch N] [--seconds S] URL
//
// Ends when the outbox is empty, or after the given seconds, and prints a JSON object.

#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "worker.h"

enum { MOST_CONNECTIONS = 64 };

struct thread {
  pthread_t handle;
  const struct options *options;
  struct work work;
};

static void *run(void *argument) {
  struct thread *thread = argument;
  thread->work = work(thread->options);
  return NULL;
}

static void usage(void) {
  fputs("usage: SQLFloor [--connections N] [--batch N] [--seconds S] URL\n", stderr);
  exit(2);
}

static double cpu_seconds(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

int main(int argc, char **argv) {
  static const struct option LONG_OPTIONS[] = {
      {"connections", required_argument, NULL, 'c'},
      {"batch", required_argument, NULL, 'b'},
      {"seconds", required_argument, NULL, 's'},
      {0},
  };
  struct options options = {.batch = 500};
  int connections = 1;
  for (int option; (option = getopt_long(argc, argv, "", LONG_OPTIONS, NULL)) != -1;) {
    switch (option) {
      case 'c': connections = atoi(optarg); break;
      case 'b': options.batch = atoi(optarg); break;
      case 's': options.seconds = atof(optarg); break;
      default: usage();
    }
  }
  if (optind + 1 != argc || connections < 1 || connections > MOST_CONNECTIONS || options.batch < 1) usage();
  options.url = argv[optind];

  struct thread threads[MOST_CONNECTIONS];
  for (int i = 0; i < connections; i++) {
    threads[i].options = &options;
    if (pthread_create(&threads[i].handle, NULL, run, &threads[i]) != 0) {
      fputs("SQLFloor: cannot start a thread\n", stderr);
      return 1;
    }
  }
  struct work all = {0};
  for (int i = 0; i < connections; i++) {
    pthread_join(threads[i].handle, NULL);
    const struct work *one = &threads[i].work;
    if (i == 0 || one->began < all.began) all.began = one->began;
    if (one->ended > all.ended) all.ended = one->ended;
    all.settled += one->settled;
    all.claims += one->claims;
    all.settlements += one->settlements;
    all.bytes += one->bytes;
    all.server_cpu += one->server_cpu;
  }
  double seconds = all.ended - all.began;
  printf(
      "{\"deliveries\": %lld, \"seconds\": %.6f, \"per_second\": %.1f, \"cpu_seconds\": %.3f, "
      "\"server_cpu_seconds\": %.3f, \"claims\": %lld, \"settlements\": %lld, \"bytes_read\": %lld, "
      "\"connections\": %d}\n",
      (long long)all.settled, seconds, seconds > 0 ? (double)all.settled / seconds : 0, cpu_seconds(), all.server_cpu,
      (long long)all.claims, (long long)all.settlements, (long long)all.bytes, connections);
  return 0;
}
