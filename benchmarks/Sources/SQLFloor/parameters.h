// The parameters of one statement in Postgres' binary format, in one buffer.

#ifndef PARAMETERS_H
#define PARAMETERS_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Object ids of the types we send (catalogue pg_type).
enum type_id {
  TYPE_INT8 = 20,
  TYPE_INT2 = 21,
  TYPE_INT4 = 23,
  TYPE_TEXT = 25,
  TYPE_TID = 27,
  TYPE_INT2_ARRAY = 1005,
  TYPE_INT4_ARRAY = 1007,
  TYPE_TEXT_ARRAY = 1009,
  TYPE_TID_ARRAY = 1010,
  TYPE_INT8_ARRAY = 1016,
  TYPE_TIMESTAMPTZ = 1184,
  TYPE_TIMESTAMPTZ_ARRAY = 1185,
};

enum { MOST_PARAMETERS = 16 };

/// Typed parameters in the order of $1, $2, …; zero-initialised it is empty, and it keeps its buffer when used again.
struct parameters {
  unsigned char *bytes;
  size_t length, capacity;
  int count;
  Oid types[MOST_PARAMETERS];
  size_t starts[MOST_PARAMETERS];
};

void parameters_clear(struct parameters *parameters);
void parameters_free(struct parameters *parameters);

void append_int4(struct parameters *parameters, int32_t value);
void append_text(struct parameters *parameters, const char *text);

/// Begins an array with this number of elements, which are then appended one by one.
void begin_array(struct parameters *parameters, enum type_id array, enum type_id element, int count);
void put_int2(struct parameters *parameters, int16_t value);
void put_int4(struct parameters *parameters, int32_t value);
void put_int8(struct parameters *parameters, int64_t value);
/// A text, or a binary value from the server.
void put_bytes(struct parameters *parameters, const void *bytes, int length);
void put_null(struct parameters *parameters);

/// Executes a prepared statement, results in binary. False: see PQerrorMessage.
bool send_prepared(PGconn *connection, const char *statement, const struct parameters *parameters);

/// Big-endian integers of a result.
int16_t get_int2(const PGresult *result, int row, int column);
int32_t get_int4(const PGresult *result, int row, int column);
int64_t get_int8(const PGresult *result, int row, int column);

#endif
