-- Units of a limit that a running service has counted in `used` already and hands to limited reads from memory. The row of such a
-- call is written when the call ends, and takes its unit out of `set_aside`. A start after a crash moves what is left to
-- `lost_units`: those units stay used, and no row has them.
alter table quota add column set_aside integer not null default 0 check (set_aside >= 0);
-- Distinguishes a counter from one of the same name before a reset: random, and never changed.
alter table quota add column instance integer not null default 0;
alter table quota add column lost_units integer not null default 0 check (lost_units >= 0);
