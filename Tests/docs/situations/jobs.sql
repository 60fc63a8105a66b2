-- Two jobs have lost their rows.
\ir base.sql
delete from push.job where name in ('miss', 'prune');
