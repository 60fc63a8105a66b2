-- For ends.py: ends all calls, one after the other. Variable: recipients, of each call.
-- Prints a row for each: microseconds of CPU of this session's server process|milliseconds until all cancels are committed.

set client_min_messages = warning;

create procedure cpu(out microseconds double precision) language plpgsql as $$
begin
  -- The kernel updates the value when a process is switched out, and otherwise only every few milliseconds.
  perform pg_sleep(0.00005);
  microseconds := split_part(pg_read_file('/proc/self/schedstat'), ' ', 1)::double precision / 1000;
end
$$;
create table cost (cpu double precision, cancelled double precision);

select set_config('bench.recipients', :'recipients', false) \g /dev/null

do $$
declare
  v_call  record;
  v_from  double precision;
  v_to    double precision;
  v_began timestamptz;
  v_made  bigint;
begin
  for v_call in select o.id, o.call_id from push.outbox o order by o.id loop
    commit;
    call cpu(v_from);
    v_began := clock_timestamp();
    perform push.end_call(v_call.call_id, 'ended', 'porteiro');
    commit;
    call cpu(v_to);
    loop
      select (select count(*) from push.deliveries d where d.outbox_id = v_call.id and d.kind = 'cancel')
        + (select count(*) from push.delivery_history h where h.outbox_id = v_call.id and h.kind = 'cancel')
        into v_made;
      exit when v_made = current_setting('bench.recipients')::int;
      if clock_timestamp() > v_began + interval '1 minute' then
        raise exception 'a minute after the end of call %, there are % cancels', v_call.call_id, v_made;
      end if;
      commit;
      perform pg_sleep(0.001);
    end loop;
    insert into cost values (v_to - v_from, extract(epoch from clock_timestamp() - v_began) * 1000);
  end loop;
end
$$;

select * from cost;
