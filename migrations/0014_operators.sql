-- Who intervened over the dashboard.

alter table push.audit add column operator text;
comment on column push.audit.operator is
  'the person for whom the dashboard acted: the name of an ops key, or what a proxy vouches for; null: anybody else. Written by '
  'push.operate_lane alone, which only the service may call';
