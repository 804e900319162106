-- Calls by the hour of their start, so that counts of long times need not read the calls. A row counts calls only as long as it has
-- `counts`. Whatever changes a call of that hour deletes the row, and the hour is counted again.
create table usage_hour (
    hour         integer primary key,      -- hours since 1970
    claim        integer not null,         -- of the process that counts the hour, or has counted it
    counts       text                      -- JSON; null: the hour is being counted
) strict;
-- Calls that started before this time (Unix milliseconds) may belong to such an hour. A commit that adds one deletes the row of its hour. A
-- trigger would do the same, but then SQLite copies each added row into a temporary table.
alter table ledger_head add column counted_until integer not null default 0;

create trigger invocation_uncounts_changed after update of state, count on invocation
    begin delete from usage_hour where hour = new.started_at / 3600000; end;
create trigger invocation_uncounts_deleted after delete on invocation
    begin delete from usage_hour where hour = old.started_at / 3600000; end;

-- Finds calls that waited for a person: they start long after they got their ids.
create index approval_expires on approval (expires_at, id);
