-- Invites that wait for their next try, for push.bypass: as a rule there are none.
create index delivery_waiting_invite on push.delivery (due_at) where ready_lane is null and kind = 0;
