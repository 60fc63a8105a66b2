// Claims and settles as the gateway does, and nothing else: the same functions, prepared, with binary parameters and
// results, the same session settings, and a moving floor.
//
// The claim of the next batch and the settlement of this one are sent in one write. While the server settles, the rows
// of the claim are read and the next two statements are sent, so that the server never waits for this program.

#include "worker.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "parameters.h"

enum { MOST_LANES = 2048, TID_SIZE = 6, NO_CALL = -1 };
static const int64_t POSTGRES_EPOCH = 946684800000000;  // microseconds from 1970 to 2000
static const int64_t FLOOR_SLACK = 250000;              // microseconds
static const double SWEEP_SHARE = 10;
static const double IDLE_SECONDS = 0.001;

enum claim_column { PLACE, LANE, OUTBOX_ID, NUMBER, ATTEMPT, DEADLINE_AT = 10, CALL_ID = 18, CLAIM_COLUMNS = 22 };

static const char SET_UP[] =
    "select set_config('synchronous_commit', 'off', false), set_config('jit', 'off', false),"
    " set_config('statement_timeout', '5s', false), set_config('lock_timeout', '1s', false),"
    " set_config('idle_in_transaction_session_timeout', '5s', false)";
static const char CLAIM[] =
    "select place, lane, outbox_id, n, attempt, kind, crashes, environment, platform, created_at, deadline_at,"
    " remaining_us, user_id, token, locale, data, ended, app_call_kind, call_id, end_reason, traceparent, payload"
    " from push.claim($1, $2, $3, $4, $5, p_total => $6, p_background => $7)";
static const char SETTLE[] =
    "select push.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)";
static const char BEAT[] = "select alive from push.beat($1, false)";

struct lane {
  int16_t id;
  bool is_expo;
  int64_t newest_deadline;  // of what was claimed from it, microseconds since 2000; INT64_MIN: nothing
};

/// The columns of a claimed row that the settlement needs.
struct row {
  uint8_t place[TID_SIZE];  // as it came
  int64_t outbox_id;
  int32_t number, attempt;
  bool is_expo;
  int call;  // a row of the result that has the call's columns
};

struct worker {
  const struct options *options;
  PGconn *connection;
  int32_t gateway;
  int32_t claim;      // the number of the last one asked for, which is the lease of its rows
  int lane_count;
  struct lane lanes[MOST_LANES];
  struct parameters parameters;
  struct row *rows;
  bool sweeps;      // the claim under way has no floor
  double asked;     // when it was sent
  double next_sweep, next_beat;
  bool beats, settles;  // these are under way
  struct work work;
};

static void fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("SQLFloor: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  exit(1);
}

double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/// Microseconds since 2000, as Postgres counts.
static int64_t wall_clock(void) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000 - POSTGRES_EPOCH;
}

/// CPU seconds of the server process of this connection.
static double server_cpu(const struct worker *worker) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/schedstat", PQbackendPID(worker->connection));
  FILE *file = fopen(path, "r");
  if (file == NULL) return 0;
  double nanoseconds;
  if (fscanf(file, "%lf", &nanoseconds) != 1) nanoseconds = 0;
  fclose(file);
  return nanoseconds * 1e-9;
}

// Before and after the pipeline -------------------------------------------------------------------------------------

static PGresult *execute(struct worker *worker, const char *sql) {
  PGresult *result = PQexec(worker->connection, sql);
  if (PQresultStatus(result) != PGRES_TUPLES_OK) fail("%s", PQerrorMessage(worker->connection));
  return result;
}

static void prepare(struct worker *worker, const char *name, const char *sql, const Oid *types, int count) {
  PGresult *result = PQprepare(worker->connection, name, sql, count, types);
  if (PQresultStatus(result) != PGRES_COMMAND_OK) fail("%s", PQerrorMessage(worker->connection));
  PQclear(result);
}

static void open_session(struct worker *worker) {
  worker->connection = PQconnectdb(worker->options->url);
  if (PQstatus(worker->connection) != CONNECTION_OK) fail("%s", PQerrorMessage(worker->connection));
  PQclear(execute(worker, SET_UP));

  PGresult *result = execute(worker, "select push.register_gateway('sql-floor', 'benchmark')");
  worker->gateway = (int32_t)strtol(PQgetvalue(result, 0, 0), NULL, 10);
  PQclear(result);

  char sql[96];
  snprintf(sql, sizeof sql, "select alive from push.beat(%d, false)", worker->gateway);
  result = execute(worker, sql);
  if (*PQgetvalue(result, 0, 0) != 't') fail("the gateway that was just registered may not claim");
  PQclear(result);

  result = execute(worker, "select id, provider from push.lane order by id");
  worker->lane_count = PQntuples(result);
  if (worker->lane_count == 0 || worker->lane_count > MOST_LANES) {
    fail("the database has %d lanes; enqueue something first, for at most %d", worker->lane_count, MOST_LANES);
  }
  for (int i = 0; i < worker->lane_count; i++) {
    worker->lanes[i].id = (int16_t)strtol(PQgetvalue(result, i, 0), NULL, 10);
    worker->lanes[i].is_expo = strcmp(PQgetvalue(result, i, 1), "expo") == 0;
    worker->lanes[i].newest_deadline = INT64_MIN;
  }
  PQclear(result);

  prepare(worker, "claim", CLAIM,
      (const Oid[]){TYPE_INT4, TYPE_INT4, TYPE_INT2_ARRAY, TYPE_INT4_ARRAY, TYPE_TIMESTAMPTZ_ARRAY, TYPE_INT4, TYPE_INT4},
      7);
  prepare(worker, "settle", SETTLE,
      (const Oid[]){TYPE_INT4, TYPE_TID_ARRAY, TYPE_INT8_ARRAY, TYPE_INT4_ARRAY, TYPE_INT4_ARRAY, TYPE_INT4_ARRAY,
          TYPE_INT2_ARRAY, TYPE_INT2_ARRAY, TYPE_TEXT_ARRAY, TYPE_TEXT_ARRAY, TYPE_TEXT_ARRAY, TYPE_TIMESTAMPTZ_ARRAY,
          TYPE_TIMESTAMPTZ_ARRAY, TYPE_TEXT_ARRAY, TYPE_INT4_ARRAY},
      15);
  prepare(worker, "beat", BEAT, (const Oid[]){TYPE_INT4}, 1);
  if (PQenterPipelineMode(worker->connection) != 1) fail("%s", PQerrorMessage(worker->connection));
}

static void close_session(struct worker *worker) {
  if (PQexitPipelineMode(worker->connection) != 1) fail("%s", PQerrorMessage(worker->connection));
  char sql[64];
  snprintf(sql, sizeof sql, "select push.retire_gateway(%d)", worker->gateway);
  PQclear(execute(worker, sql));
  PQfinish(worker->connection);
}

// The pipeline --------------------------------------------------------------------------------------------------------

/// Each statement is its own transaction, as the gateway's are.
static void send_statement(struct worker *worker, const char *name) {
  if (!send_prepared(worker->connection, name, &worker->parameters) || PQpipelineSync(worker->connection) != 1) {
    fail("%s", PQerrorMessage(worker->connection));
  }
}

/// The result of the oldest unanswered statement.
static PGresult *receive(struct worker *worker) {
  PGresult *result = PQgetResult(worker->connection);
  if (PQresultStatus(result) != PGRES_TUPLES_OK) fail("%s", PQresultErrorMessage(result));
  if (PQgetResult(worker->connection) != NULL) fail("a statement had two results");
  PGresult *sync = PQgetResult(worker->connection);
  if (PQresultStatus(sync) != PGRES_PIPELINE_SYNC) fail("the pipeline is out of step");
  PQclear(sync);
  return result;
}

static void send_claim(struct worker *worker, bool sweep) {
  struct parameters *p = &worker->parameters;
  int lanes = worker->lane_count, batch = worker->options->batch;
  worker->asked = now();
  worker->sweeps = sweep || worker->asked >= worker->next_sweep;
  worker->work.claims += 1;
  parameters_clear(p);
  append_int4(p, worker->gateway);
  append_int4(p, ++worker->claim);
  begin_array(p, TYPE_INT2_ARRAY, TYPE_INT2, lanes);
  for (int i = 0; i < lanes; i++) put_int2(p, worker->lanes[i].id);
  begin_array(p, TYPE_INT4_ARRAY, TYPE_INT4, lanes);
  for (int i = 0; i < lanes; i++) put_int4(p, batch);
  begin_array(p, TYPE_TIMESTAMPTZ_ARRAY, TYPE_TIMESTAMPTZ, lanes);
  for (int i = 0; i < lanes; i++) {
    int64_t newest = worker->lanes[i].newest_deadline;
    put_int8(p, worker->sweeps || newest == INT64_MIN ? INT64_MIN : newest - FLOOR_SLACK);
  }
  append_int4(p, batch);      // of all lanes together
  append_int4(p, INT32_MAX);  // of what has more than ten minutes
  send_statement(worker, "claim");
}

/// Reads every column of every row that libpq has not yet parsed; stores in `rows` what the settlement needs.
static int read_rows(struct worker *worker, const PGresult *claimed) {
  int count = PQntuples(claimed);
  struct lane *lane = worker->lanes;
  for (int i = 0; i < count; i++) {
    int16_t id = get_int2(claimed, i, LANE);
    while (lane->id != id) lane = lane + 1 < worker->lanes + worker->lane_count ? lane + 1 : worker->lanes;
    int64_t deadline = get_int8(claimed, i, DEADLINE_AT);
    if (deadline > lane->newest_deadline) lane->newest_deadline = deadline;
    worker->rows[i] = (struct row){
        .outbox_id = get_int8(claimed, i, OUTBOX_ID),
        .number = get_int4(claimed, i, NUMBER),
        .attempt = get_int4(claimed, i, ATTEMPT),
        .is_expo = lane->is_expo,
        .call = PQgetisnull(claimed, i, CALL_ID) ? NO_CALL : i,
    };
    memcpy(worker->rows[i].place, PQgetvalue(claimed, i, PLACE), TID_SIZE);
    for (int column = 0; column < CLAIM_COLUMNS; column++) worker->work.bytes += PQgetlength(claimed, i, column);
  }
  worker->work.claimed += count;
  return count;
}

static int by_key(const void *left, const void *right) {
  const struct row *a = left, *b = right;
  if (a->outbox_id != b->outbox_id) return a->outbox_id < b->outbox_id ? -1 : 1;
  return (a->number > b->number) - (a->number < b->number);
}

/// Only one row of a call has the call's columns. After sorting, rows of the same call are adjacent.
static void share_calls(struct row *rows, int count) {
  for (int first = 0, end; first < count; first = end) {
    int call = NO_CALL;
    for (end = first; end < count && rows[end].outbox_id == rows[first].outbox_id; end++) {
      if (rows[end].call != NO_CALL) call = rows[end].call;
    }
    if (call == NO_CALL) fail("a claim did not say what the call of a delivery is");
    for (int i = first; i < end; i++) rows[i].call = call;
  }
}

/// Delivered, each with a provider's id; Expo pushes also have a receipt to be read later.
static void send_settle(struct worker *worker, const PGresult *claimed, int32_t claim, int count) {
  struct parameters *p = &worker->parameters;
  struct row *rows = worker->rows;
  int64_t time = wall_clock();
  qsort(rows, (size_t)count, sizeof *rows, by_key);
  share_calls(rows, count);
  worker->work.settlements += 1;
  parameters_clear(p);
  append_int4(p, worker->gateway);
  begin_array(p, TYPE_TID_ARRAY, TYPE_TID, count);
  for (int i = 0; i < count; i++) put_bytes(p, rows[i].place, TID_SIZE);
  begin_array(p, TYPE_INT8_ARRAY, TYPE_INT8, count);
  for (int i = 0; i < count; i++) put_int8(p, rows[i].outbox_id);
  begin_array(p, TYPE_INT4_ARRAY, TYPE_INT4, count);
  for (int i = 0; i < count; i++) put_int4(p, rows[i].number);
  begin_array(p, TYPE_INT4_ARRAY, TYPE_INT4, count);  // lease
  for (int i = 0; i < count; i++) put_int4(p, claim);
  begin_array(p, TYPE_INT4_ARRAY, TYPE_INT4, count);  // attempts
  for (int i = 0; i < count; i++) put_int4(p, rows[i].attempt);
  begin_array(p, TYPE_INT2_ARRAY, TYPE_INT2, count);  // outcome
  for (int i = 0; i < count; i++) put_int2(p, 0);
  begin_array(p, TYPE_INT2_ARRAY, TYPE_INT2, count);  // status
  for (int i = 0; i < count; i++) put_int2(p, 200);
  begin_array(p, TYPE_TEXT_ARRAY, TYPE_TEXT, count);  // reason
  for (int i = 0; i < count; i++) put_null(p);
  begin_array(p, TYPE_TEXT_ARRAY, TYPE_TEXT, count);  // the provider's id
  for (int i = 0; i < count; i++) {
    char id[48];
    int length = snprintf(id, sizeof id, "%08x-0000-4000-8000-%012llx", (unsigned)rows[i].number,
        (unsigned long long)rows[i].outbox_id & 0xffffffffffff);
    put_bytes(p, id, length);
  }
  begin_array(p, TYPE_TEXT_ARRAY, TYPE_TEXT, count);  // call id
  for (int i = 0; i < count; i++) {
    int row = rows[i].call;
    put_bytes(p, PQgetvalue(claimed, row, CALL_ID), PQgetlength(claimed, row, CALL_ID));
  }
  for (int k = 0; k < 2; k++) {  // sent, answered
    begin_array(p, TYPE_TIMESTAMPTZ_ARRAY, TYPE_TIMESTAMPTZ, count);
    for (int i = 0; i < count; i++) put_int8(p, time);
  }
  begin_array(p, TYPE_TEXT_ARRAY, TYPE_TEXT, count);  // failures
  for (int i = 0; i < count; i++) put_null(p);
  begin_array(p, TYPE_INT4_ARRAY, TYPE_INT4, count);  // receipt after, milliseconds
  for (int i = 0; i < count; i++) {
    if (rows[i].is_expo) put_int4(p, 900000); else put_null(p);
  }
  send_statement(worker, "settle");
}

static void send_beat(struct worker *worker) {
  parameters_clear(&worker->parameters);
  append_int4(&worker->parameters, worker->gateway);
  send_statement(worker, "beat");
  worker->next_beat = now() + 1;
}

static void receive_settled(struct worker *worker) {
  if (worker->beats) {
    PGresult *result = receive(worker);
    if (*PQgetvalue(result, 0, 0) == 0) fail("the gateway was declared dead, or the server has crashed");
    PQclear(result);
  }
  if (worker->settles) {
    PGresult *result = receive(worker);
    worker->work.settled += get_int8(result, 0, 0);
    worker->work.ended = now();
    PQclear(result);
  }
  worker->beats = worker->settles = false;
}

static void pause_briefly(void) {
  struct timespec pause = {.tv_nsec = (long)(IDLE_SECONDS * 1e9)};
  nanosleep(&pause, NULL);
}

static void run(struct worker *worker) {
  double end = worker->options->seconds > 0 ? now() + worker->options->seconds : 0;
  worker->work.began = worker->work.ended = now();
  send_claim(worker, true);
  for (bool goes_on = true; goes_on;) {
    PGresult *claimed = receive(worker);
    double answered = now();
    if (worker->sweeps) worker->next_sweep = answered + SWEEP_SHARE * (answered - worker->asked);
    int count = read_rows(worker, claimed);
    int32_t claim = worker->claim;
    // No row below or above the floor: the outbox is empty.
    if (end > 0) {
      goes_on = answered < end;
    } else {
      goes_on = count > 0 || !worker->sweeps;
    }
    if (goes_on && count == 0 && end > 0) pause_briefly();
    if (goes_on) send_claim(worker, count == 0);
    bool beats = answered >= worker->next_beat, settles = count > 0;
    if (beats) send_beat(worker);
    if (settles) send_settle(worker, claimed, claim, count);
    PQclear(claimed);
    receive_settled(worker);
    worker->beats = beats;
    worker->settles = settles;
  }
  receive_settled(worker);
}

struct work work(const struct options *options) {
  struct worker *worker = calloc(1, sizeof *worker);
  struct row *rows = calloc((size_t)options->batch, sizeof *rows);
  if (worker == NULL || rows == NULL) fail("out of memory");
  worker->options = options;
  worker->rows = rows;
  open_session(worker);
  fprintf(stderr, "SQLFloor: backend %d, gateway %d\n", PQbackendPID(worker->connection), worker->gateway);
  double cpu = server_cpu(worker);
  run(worker);
  worker->work.server_cpu = server_cpu(worker) - cpu;
  close_session(worker);
  struct work work = worker->work;
  parameters_free(&worker->parameters);
  free(rows);
  free(worker);
  if (work.settled != work.claimed) {
    fail("claimed %lld deliveries and settled %lld", (long long)work.claimed, (long long)work.settled);
  }
  return work;
}
