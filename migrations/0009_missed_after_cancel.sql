-- A missed call that follows a cancel to the same phone is told apart, and so is that cancel.

comment on column push.delivery.n is
  'number of the push within its call: invites and notifications from 0, cancels from 10000, missed calls from 20000; where a phone '
  'gets both, cancels from 30000 and missed calls from 40000';

alter table push.ends_unchecked add column is_unannounced boolean not null default false;
comment on column push.ends_unchecked.is_unannounced is 'whether the missed calls are still to be announced: it ended';
