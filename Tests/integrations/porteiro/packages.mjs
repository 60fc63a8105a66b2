// The packages that Porteiro's backend imports, as far as it uses them; all of them are this file (see express.py).
// Supabase's client reads tables in memory and refuses columns that they do not have.

import { randomUUID } from 'node:crypto';

export const COLUMNS = {
  profiles: 'id user_id full_name email phone user_type building_id is_available notification_enabled push_token voip_push_token updated_at',
  user_devices: 'id user_id device_token platform token_type environment created_at updated_at',
  buildings: 'id name',
  apartments: 'id number building_id',
  apartment_residents: 'id profile_id apartment_id relationship is_primary is_active',
  intercom_calls: 'id apartment_id initiator_id initiator_type status started_at answered_at ended_at duration_seconds channel_name created_at',
  call_participants: 'id call_id participant_id participant_type status joined_at left_at created_at',
};
// Which column of a table names the row of another one.
const KEYS = {
  apartments: { buildings: 'building_id' },
  apartment_residents: { profiles: 'profile_id', apartments: 'apartment_id' },
  intercom_calls: { apartments: 'apartment_id', profiles: 'initiator_id' },
  call_participants: { profiles: 'participant_id' },
};

export const tables = Object.fromEntries(Object.keys(COLUMNS).map((name) => [name, []]));
for (const [name, rows] of Object.entries(JSON.parse(process.env.TABLES))) for (const row of rows) add(name, row);

function add(table, row) {
  const columns = COLUMNS[table].split(' ');
  for (const column of Object.keys(row)) known(table, column);
  const full = { ...Object.fromEntries(columns.map((column) => [column, null])), id: randomUUID(), ...row };
  tables[table].push(full);
  return full;
}

function known(table, column) {
  if (!COLUMNS[table].split(' ').includes(column)) throw new Error(`column ${table}.${column} does not exist`);
}

// A row as `select` names it: columns, and rows of other tables as `name!hint(columns)`.
function chosen(table, row, columns) {
  const result = {};
  for (const [, name, inner] of columns.matchAll(/([\w*]+)(?:!\w+)?\s*(?:\(((?:[^()]|\([^()]*\))*)\))?/g)) {
    if (inner !== undefined) {
      const other = tables[name].find(({ id }) => id === row[KEYS[table][name]]);
      result[name] = other ? chosen(name, other, inner) : null;
    } else if (name === '*') {
      Object.assign(result, row);
    } else {
      known(table, name);
      result[name] = row[name];
    }
  }
  return result;
}

class Query {
  constructor(table) {
    Object.assign(this, { table, conditions: [], columns: null, change: null, action: 'select', one: null });
  }

  select(columns = '*') { this.columns = columns; return this; }
  insert(row) { return Object.assign(this, { action: 'insert', change: row }); }
  update(change) { return Object.assign(this, { action: 'update', change }); }
  delete() { return Object.assign(this, { action: 'delete' }); }

  where(column, holds) {
    known(this.table, column);
    this.conditions.push((row) => holds(row[column]));
    return this;
  }
  eq(column, value) { return this.where(column, (own) => own !== null && String(own) === String(value)); }
  neq(column, value) { return this.where(column, (own) => own !== null && own !== value); }
  in(column, values) { return this.where(column, (own) => values.includes(own)); }
  lt(column, value) { return this.where(column, (own) => own !== null && new Date(own) < new Date(value)); }
  limit() { return this; }
  single() { return Object.assign(this, { one: 'must' }); }
  maybeSingle() { return Object.assign(this, { one: 'may' }); }

  run() {
    let found = tables[this.table].filter((row) => this.conditions.every((holds) => holds(row)));
    if (this.action === 'insert') found = [add(this.table, this.change)];
    if (this.action === 'update') {
      for (const column of Object.keys(this.change)) known(this.table, column);
      for (const row of found) Object.assign(row, this.change);
    }
    if (this.action === 'delete') tables[this.table] = tables[this.table].filter((row) => !found.includes(row));
    if (!this.columns) return { data: null, error: null };
    const rows = found.map((row) => chosen(this.table, row, this.columns));
    if (!this.one) return { data: rows, error: null };
    if (rows.length > 1 || rows.length < 1 && this.one === 'must') return { data: null, error: { message: `${rows.length} rows` } };
    return { data: rows[0] ?? null, error: null };
  }

  then(resolve) {
    try {
      resolve(this.run());
    } catch (error) {
      resolve({ data: null, error: { message: error.message } });
    }
  }
}

export const SupabaseClientFactory = { createServerClient: () => ({ client: { from: (table) => new Query(table) }, unified: null }) };
export const UnifiedSupabaseClient = null;

// cors() is middleware; the others make tokens for Agora.
export default Object.assign(() => (req, res, next) => next(), {
  RtcTokenBuilder: { buildTokenWithUserAccount: () => 'rtc' },
  RtmTokenBuilder: { buildToken: () => 'rtm' },
  RtcRole: { PUBLISHER: 1, SUBSCRIBER: 2 },
});
