-- Which ledger this is and how many commits it has acknowledged. The same two stand in a file beside the database, written
-- after each commit: a database that has counted less has lost some.
create table ledger_head (
    one          integer primary key check (one = 1),
    id           blob    not null check (length(id) = 16),         -- random
    commits      integer not null
) strict;
insert into ledger_head values (1, randomblob(16), 0);

-- CRC-32 over what a row says, written with its end: pages of the file have no checksum. Null: not ended, or older.
alter table invocation add column sum integer;
alter table stored_result add column sum integer;
