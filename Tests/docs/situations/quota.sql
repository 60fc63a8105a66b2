-- A backend enqueues in a loop, and its app has a quota.
\ir base.sql
select push.register_app('porteiro', 60, p_quota => '{3,null,null}', p_replica => 'pod-1');
do $$
begin
  for i in 1..7 loop
    begin
      insert into push.outbox (app, payload, recipients)
        values ('porteiro', jsonb_build_object('callId', 'loop-' || i, 'from', 'x'), '["nobody"]');
    exception when sqlstate '53Q01' then null;
    end;
  end loop;
end
$$;
