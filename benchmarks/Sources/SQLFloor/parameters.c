// Writes parameters and reads integers in Postgres' binary format.

#include "parameters.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void append(struct parameters *parameters, const void *bytes, size_t length) {
  if (parameters->length + length > parameters->capacity) {
    parameters->capacity = 2 * (parameters->length + length) + 4096;
    parameters->bytes = realloc(parameters->bytes, parameters->capacity);
    if (parameters->bytes == NULL) {
      fputs("SQLFloor: out of memory\n", stderr);
      exit(1);
    }
  }
  if (length > 0) memcpy(parameters->bytes + parameters->length, bytes, length);
  parameters->length += length;
}

static void append_big16(struct parameters *parameters, uint16_t value) {
  value = htobe16(value);
  append(parameters, &value, sizeof value);
}

static void append_big32(struct parameters *parameters, uint32_t value) {
  value = htobe32(value);
  append(parameters, &value, sizeof value);
}

static void append_big64(struct parameters *parameters, uint64_t value) {
  value = htobe64(value);
  append(parameters, &value, sizeof value);
}

static void begin(struct parameters *parameters, enum type_id type) {
  if (parameters->count == MOST_PARAMETERS) {
    fputs("SQLFloor: too many parameters\n", stderr);
    abort();
  }
  parameters->types[parameters->count] = type;
  parameters->starts[parameters->count] = parameters->length;
  parameters->count += 1;
}

void parameters_clear(struct parameters *parameters) {
  parameters->length = 0;
  parameters->count = 0;
}

void parameters_free(struct parameters *parameters) {
  free(parameters->bytes);
  *parameters = (struct parameters){0};
}

void append_int4(struct parameters *parameters, int32_t value) {
  begin(parameters, TYPE_INT4);
  append_big32(parameters, (uint32_t)value);
}

void append_text(struct parameters *parameters, const char *text) {
  begin(parameters, TYPE_TEXT);
  append(parameters, text, strlen(text));
}

void begin_array(struct parameters *parameters, enum type_id array, enum type_id element, int count) {
  begin(parameters, array);
  append_big32(parameters, count > 0 ? 1 : 0);  // dimensions
  append_big32(parameters, 1);                  // may hold nulls
  append_big32(parameters, element);
  if (count == 0) return;
  append_big32(parameters, (uint32_t)count);
  append_big32(parameters, 1);  // the first has index 1
}

void put_int2(struct parameters *parameters, int16_t value) {
  append_big32(parameters, sizeof value);
  append_big16(parameters, (uint16_t)value);
}

void put_int4(struct parameters *parameters, int32_t value) {
  append_big32(parameters, sizeof value);
  append_big32(parameters, (uint32_t)value);
}

void put_int8(struct parameters *parameters, int64_t value) {
  append_big32(parameters, sizeof value);
  append_big64(parameters, (uint64_t)value);
}

void put_bytes(struct parameters *parameters, const void *bytes, int length) {
  append_big32(parameters, (uint32_t)length);
  append(parameters, bytes, (size_t)length);
}

void put_null(struct parameters *parameters) { append_big32(parameters, (uint32_t)-1); }

bool send_prepared(PGconn *connection, const char *statement, const struct parameters *parameters) {
  const char *values[MOST_PARAMETERS];
  int lengths[MOST_PARAMETERS], formats[MOST_PARAMETERS];
  for (int i = 0; i < parameters->count; i++) {
    size_t end = i + 1 < parameters->count ? parameters->starts[i + 1] : parameters->length;
    values[i] = (const char *)parameters->bytes + parameters->starts[i];
    lengths[i] = (int)(end - parameters->starts[i]);
    formats[i] = 1;
  }
  return PQsendQueryPrepared(connection, statement, parameters->count, values, lengths, formats, 1) == 1;
}

int16_t get_int2(const PGresult *result, int row, int column) {
  uint16_t value;
  memcpy(&value, PQgetvalue(result, row, column), sizeof value);
  return (int16_t)be16toh(value);
}

int32_t get_int4(const PGresult *result, int row, int column) {
  uint32_t value;
  memcpy(&value, PQgetvalue(result, row, column), sizeof value);
  return (int32_t)be32toh(value);
}

int64_t get_int8(const PGresult *result, int row, int column) {
  uint64_t value;
  memcpy(&value, PQgetvalue(result, row, column), sizeof value);
  return (int64_t)be64toh(value);
}
