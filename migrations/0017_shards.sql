-- Several databases as shards of one outbox (functions/shards.sql). Both tables are empty in a database that stands alone.

create table push.shard_map (
  generation int primary key,
  shards     smallint[] not null,
  since      timestamptz not null default clock_timestamp(),
  until      timestamptz,
  constraint shard_map_generation_positive check (generation > 0),
  constraint shard_map_every_slot check (array_ndims(shards) = 1 and array_lower(shards, 1) = 1 and cardinality(shards) = 1024),
  constraint shard_map_shards_range check (0 <= all (shards) and 1024 > all (shards) and array_position(shards, null) is null),
  constraint shard_map_order check (until >= since)
);
-- Read at every enqueue: neither compressed nor out of line.
alter table push.shard_map alter column shards set storage plain;
create unique index shard_map_current on push.shard_map ((until is null)) where until is null;
comment on table push.shard_map is
  'which shard owns which slot of call ids: the current map, and those before it while calls that were enqueued under them are kept. '
  'Empty: this database stands alone';
comment on column push.shard_map.generation is 'number of the map, the same in all databases';
comment on column push.shard_map.shards is 'the shard of each of the 1,024 slots; that of slot n (push.slot_of) is element n + 1';
comment on column push.shard_map.since is 'when this database took over the map';
comment on column push.shard_map.until is 'when this database took over the next one; null: the current map';

create table push.shard_here (
  is_present boolean primary key default true,
  shard      smallint not null,
  constraint shard_here_at_most_one check (is_present),
  constraint shard_here_range check (shard between 0 and 1023)
);
comment on table push.shard_here is 'at most one row: which shard this database is';
comment on column push.shard_here.is_present is 'always true: makes the row the only one';
comment on column push.shard_here.shard is 'number of this shard in push.shard_map';
