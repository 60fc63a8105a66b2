-- New sessions may not write. Those of the test began before.
\ir base.sql
do $$ begin execute format('alter database %I set default_transaction_read_only = on', current_database()); end $$;
