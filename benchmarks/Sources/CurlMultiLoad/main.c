// Measures libcurl's multi interface over HTTP/2: as many transfers at a time as allowed streams, each handle used
// repeatedly, driven by epoll; every request has its own path, apns-id and payload.
//
//   CurlMultiLoad --port N --ca FILE --token TOKEN [--topic T] [--requests N] [--streams N] [--connections N] [--devices N]
//
// Prints a JSON object. Fails if an answer is not 200.

#include <curl/curl.h>
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { URL_BYTES = 160, BODY_BYTES = 1024, HEADER_BYTES = 512, EVENTS = 64 };

struct options {
  const char *port, *ca, *token, *topic;
  long requests, streams, connections, devices;
};

// A transfer: a handle and the data of its current request.
struct transfer {
  CURL *handle;
  struct curl_slist *headers, *id;
  long number;
  char body[BODY_BYTES];
};

struct load {
  struct options options;
  CURLM *multi;
  int epoll;
  // The time at which libcurl must be called, milliseconds of the monotonic clock; -1 for never.
  long due;
  long sent, ok, failed, retries, body_bytes, connects;
  char failure[160];
};

static void fail(const char *what, const char *why) {
  fprintf(stderr, "CurlMultiLoad: %s: %s\n", what, why);
  exit(1);
}

static void check(CURLMcode code) {
  if (code != CURLM_OK) fail("libcurl", curl_multi_strerror(code));
}

// --- Requests ---

static struct curl_slist *append(struct curl_slist *list, const char *name, const char *value) {
  char line[HEADER_BYTES];
  if (snprintf(line, sizeof line, "%s: %s", name, value) >= (int)sizeof line) fail(name, "is too long");
  struct curl_slist *longer = curl_slist_append(list, line);
  if (longer == NULL) fail(name, "no memory");
  return longer;
}

static size_t discard(char *bytes, size_t size, size_t count, void *context) {
  (void)bytes, (void)context;
  return size * count;
}

// Sets the options shared by all requests of a transfer.
static void prepare(struct transfer *transfer, const struct options *options) {
  CURL *handle = transfer->handle = curl_easy_init();
  if (handle == NULL) fail("libcurl", "no handle");
  char bearer[HEADER_BYTES], topic[HEADER_BYTES];
  snprintf(bearer, sizeof bearer, "bearer %s", options->token);
  snprintf(topic, sizeof topic, "%s.voip", options->topic);
  transfer->headers = append(NULL, "authorization", bearer);
  append(transfer->headers, "apns-topic", topic);
  append(transfer->headers, "apns-push-type", "voip");
  append(transfer->headers, "apns-priority", "10");
  append(transfer->headers, "apns-expiration", "0");
  append(transfer->headers, "apns-id", "00000000-0000-8000-8000-000000000000");
  // No client of APNs sends these.
  curl_slist_append(transfer->headers, "content-type:");
  curl_slist_append(transfer->headers, "accept:");
  for (struct curl_slist *item = transfer->headers; item != NULL; item = item->next)
    if (strncmp(item->data, "apns-id:", 8) == 0) transfer->id = item;
  curl_easy_setopt(handle, CURLOPT_PRIVATE, transfer);
  curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
  curl_easy_setopt(handle, CURLOPT_PIPEWAIT, 1L);
  curl_easy_setopt(handle, CURLOPT_CAINFO, options->ca);
  curl_easy_setopt(handle, CURLOPT_POST, 1L);
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, transfer->headers);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, discard);
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
}

static void begin(struct load *load, struct transfer *transfer) {
  long number = transfer->number;
  char url[URL_BYTES];
  snprintf(url, sizeof url, "https://localhost:%s/3/device/%064lx", load->options.port, number);
  int length = snprintf(
      transfer->body, sizeof transfer->body,
      "{\"type\":\"intercom_call\",\"action\":\"incoming_call\",\"callId\":\"bench-%ld\","
      "\"from\":\"5f0c9f6e-7a33-4f0e-9a4c-2a1f1a2b3c4d\",\"fromName\":\"Portaria\",\"apartmentNumber\":\"%ld\","
      "\"buildingName\":\"Torre Norte\",\"channelName\":\"call-%ld\","
      "\"metadata\":{\"clientVersion\":\"1.4.2\",\"schemaVersion\":1},\"timestamp\":\"%ld000\","
      "\"expiresAt\":\"%ld000\",\"seq\":\"0\",\"isVoip\":true}",
      number, number % 500, number, (long)time(NULL), (long)time(NULL) + 600);
  snprintf(strchr(transfer->id->data, ' ') + 1, 37, "%08lx-0000-8000-8000-000000000000", number);
  curl_easy_setopt(transfer->handle, CURLOPT_URL, url);
  curl_easy_setopt(transfer->handle, CURLOPT_POSTFIELDSIZE, (long)length);
  curl_easy_setopt(transfer->handle, CURLOPT_POSTFIELDS, transfer->body);
  load->body_bytes += length;
  check(curl_multi_add_handle(load->multi, transfer->handle));
}

// Begins the next request, unless all have been begun.
static void begin_next(struct load *load, struct transfer *transfer) {
  if (load->sent == load->options.requests) return;
  transfer->number = load->sent++ % load->options.devices + 1;
  begin(load, transfer);
}

static void end(struct load *load, CURL *handle, CURLcode result) {
  struct transfer *transfer = NULL;
  long status = 0, connects = 0;
  curl_easy_getinfo(handle, CURLINFO_PRIVATE, (char **)&transfer);
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_getinfo(handle, CURLINFO_NUM_CONNECTS, &connects);
  load->connects += connects;
  check(curl_multi_remove_handle(load->multi, handle));
  // libcurl 7.88 resets streams that were answered, and servers close connections with many resets. The requests on
  // such a connection are sent again.
  bool is_cut = result != CURLE_OK && result != CURLE_OPERATION_TIMEDOUT && load->retries < load->options.requests;
  if (result == CURLE_OK && status == 200) {
    load->ok++;
  } else if (is_cut) {
    load->retries++;
    return begin(load, transfer);
  } else if (load->failed++ == 0) {
    snprintf(load->failure, sizeof load->failure, "%s, status %ld", curl_easy_strerror(result), status);
  }
  begin_next(load, transfer);
}

// --- Driving libcurl ---

static int watch(CURL *handle, curl_socket_t socket, int what, void *context, void *known) {
  (void)handle;
  struct load *load = context;
  struct epoll_event event = {.data.fd = socket};
  if (what == CURL_POLL_REMOVE) {
    epoll_ctl(load->epoll, EPOLL_CTL_DEL, socket, NULL);
    return 0;
  }
  if (what & CURL_POLL_IN) event.events |= EPOLLIN;
  if (what & CURL_POLL_OUT) event.events |= EPOLLOUT;
  if (epoll_ctl(load->epoll, known == NULL ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, socket, &event) != 0)
    fail("epoll_ctl", strerror(errno));
  if (known == NULL) curl_multi_assign(load->multi, socket, load);
  return 0;
}

static long milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int set_timer(CURLM *multi, long timeout, void *context) {
  (void)multi;
  ((struct load *)context)->due = timeout < 0 ? -1 : milliseconds() + timeout;
  return 0;
}

static void run(struct load *load) {
  int running = 0;
  while (load->ok + load->failed < load->options.requests) {
    struct epoll_event events[EVENTS];
    long wait = load->due < 0 ? -1 : load->due - milliseconds();
    int count = epoll_wait(load->epoll, events, EVENTS, load->due < 0 ? -1 : (int)(wait > 0 ? wait : 0));
    if (count < 0 && errno != EINTR) fail("epoll_wait", strerror(errno));
    if (load->due >= 0 && load->due <= milliseconds()) {
      load->due = -1;
      check(curl_multi_socket_action(load->multi, CURL_SOCKET_TIMEOUT, 0, &running));
    }
    for (int i = 0; i < count; i++) {
      int ready = (events[i].events & EPOLLIN ? CURL_CSELECT_IN : 0) | (events[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                  (events[i].events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
      check(curl_multi_socket_action(load->multi, events[i].data.fd, ready, &running));
    }
    int left = 0;
    for (CURLMsg *message; (message = curl_multi_info_read(load->multi, &left)) != NULL;)
      if (message->msg == CURLMSG_DONE) end(load, message->easy_handle, message->data.result);
  }
}

// --- The command line ---

static long number(const char *text) {
  char *rest;
  long value = strtol(text, &rest, 10);
  if (*rest != '\0' || value <= 0) fail(text, "is no number above 0");
  return value;
}

static struct options parse(int argc, char **argv) {
  struct options options = {.topic = "com.example.app", .requests = 20000, .streams = 1000, .connections = 1, .devices = 3000};
  static const struct option known[] = {
      {"port", 1, NULL, 'p'},    {"ca", 1, NULL, 'a'},          {"token", 1, NULL, 't'},
      {"topic", 1, NULL, 'o'},   {"requests", 1, NULL, 'n'},    {"streams", 1, NULL, 'm'},
      {"devices", 1, NULL, 'd'}, {"connections", 1, NULL, 'c'}, {NULL, 0, NULL, 0}};
  for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) switch (option) {
      case 'p': options.port = optarg; break;
      case 'a': options.ca = optarg; break;
      case 't': options.token = optarg; break;
      case 'o': options.topic = optarg; break;
      case 'n': options.requests = number(optarg); break;
      case 'm': options.streams = number(optarg); break;
      case 'd': options.devices = number(optarg); break;
      case 'c': options.connections = number(optarg); break;
      default: exit(64);
    }
  if (options.port == NULL || options.ca == NULL || options.token == NULL) fail("--port, --ca, --token", "are needed");
  return options;
}

static long microseconds(struct timeval time) { return time.tv_sec * 1000000L + time.tv_usec; }

int main(int argc, char **argv) {
  struct load load = {.options = parse(argc, argv), .epoll = epoll_create1(0), .due = -1};
  curl_global_init(CURL_GLOBAL_ALL);
  load.multi = curl_multi_init();
  curl_multi_setopt(load.multi, CURLMOPT_PIPELINING, (long)CURLPIPE_MULTIPLEX);
  curl_multi_setopt(load.multi, CURLMOPT_MAX_HOST_CONNECTIONS, load.options.connections);
  curl_multi_setopt(load.multi, CURLMOPT_MAX_CONCURRENT_STREAMS, load.options.streams);
  curl_multi_setopt(load.multi, CURLMOPT_SOCKETFUNCTION, watch);
  curl_multi_setopt(load.multi, CURLMOPT_SOCKETDATA, &load);
  curl_multi_setopt(load.multi, CURLMOPT_TIMERFUNCTION, set_timer);
  curl_multi_setopt(load.multi, CURLMOPT_TIMERDATA, &load);

  long transfers = load.options.streams * load.options.connections;
  struct transfer *all = calloc((size_t)transfers, sizeof *all);
  if (all == NULL) fail("transfers", "no memory");
  for (long i = 0; i < transfers; i++) prepare(&all[i], &load.options);

  struct timespec start, stop;
  struct rusage before, after;
  clock_gettime(CLOCK_MONOTONIC, &start);
  getrusage(RUSAGE_SELF, &before);
  for (long i = 0; i < transfers; i++) begin_next(&load, &all[i]);
  run(&load);
  getrusage(RUSAGE_SELF, &after);
  clock_gettime(CLOCK_MONOTONIC, &stop);

  if (load.failed > 0) {
    fprintf(stderr, "CurlMultiLoad: %ld of %ld requests failed; the first: %s\n", load.failed, load.options.requests, load.failure);
    return 1;
  }
  printf("{\"requests\":%ld,\"ok\":%ld,\"body_bytes\":%ld,\"connections\":%ld,\"retries\":%ld,\"microseconds\":%ld,\"cpu_microseconds\":%ld}\n",
         load.options.requests, load.ok, load.body_bytes / (load.options.requests + load.retries),
         load.connects, load.retries,
         (stop.tv_sec - start.tv_sec) * 1000000L + (stop.tv_nsec - start.tv_nsec) / 1000,
         microseconds(after.ru_utime) + microseconds(after.ru_stime) - microseconds(before.ru_utime) - microseconds(before.ru_stime));
  for (long i = 0; i < transfers; i++) {
    curl_easy_cleanup(all[i].handle);
    curl_slist_free_all(all[i].headers);
  }
  free(all);
  curl_multi_cleanup(load.multi);
  curl_global_cleanup();
  return 0;
}
