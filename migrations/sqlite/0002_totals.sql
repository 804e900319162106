-- Every list is a merge of a few ranges of one index: which callers and tools there are is known from usage_total, and
-- each of their states is one range, newest last. Less to write for every call. A run has an index of its
-- own, with all that a list can be filtered by.
drop index invocation_tool;
drop index invocation_caller;
drop index invocation_open;
drop index invocation_run;
create index invocation_of   on invocation (caller, tool, state, id) where state != 'reserved';
create index invocation_run  on invocation (run_id, id, caller, tool, state)
    where run_id is not null and state != 'reserved';
-- The few that are under way, so that a call is entered in the large ones once, when it ends.
create index invocation_open on invocation (id) where state = 'reserved';

-- Calls per caller and tool since the ledger began, counted in the commit that writes their rows; retention leaves them.
create table usage_total (
    caller       text    not null,
    tool         text    not null,
    calls        integer not null,          -- begun
    succeeded    integer not null,
    failed       integer not null,          -- failed, timed_out, cancelled, unknown
    refused      integer not null,
    cache_hits   integer not null,          -- hit, joined
    primary key (caller, tool)
) strict, without rowid;

insert into usage_total
    select caller, tool, count(*), sum(state = 'succeeded'),
        sum(state in ('failed', 'timed_out', 'cancelled', 'unknown')), sum(state = 'refused'),
        sum(cache in ('hit', 'joined') and state != 'refused')
    from invocation group by caller, tool;

-- How long calls that were not refused took: a DDSketch (Masson and others, VLDB 2019) of microseconds. Bucket i counts
-- durations above g^(i-1) up to g^i, g = 1.02 / 0.98, so quantiles are within 2 %.
create table usage_latency (
    caller       text    not null,
    tool         text    not null,
    bucket       integer not null,
    calls        integer not null,
    primary key (caller, tool, bucket)
) strict, without rowid;

create table bound (upto real primary key, bucket integer not null) strict, without rowid;
insert into bound
    with recursive step (bucket, upto) as
        (select 0, 1.0 union all select bucket + 1, upto * (1.02 / 0.98) from step where upto < 1e15)
    select upto, bucket from step;
insert into usage_latency
    select caller, tool, (select bucket from bound where upto >= duration_us order by upto limit 1) as held, count(*)
    from invocation where duration_us is not null and state != 'refused' group by caller, tool, held;
drop table bound;

-- When a counter was last counted, Unix milliseconds: runs end without saying so, and their counters go with retention.
alter table quota add column counted_at integer not null default 0;
create index quota_run on quota (counted_at) where per = 'run';

-- Which counters a row is charged to (",3,7,"), so that counters can be held against rows: `used` is `carried` and the
-- rows from `from_seq` on that have the counter's number. Counters of runs have none.
alter table invocation add column charged text;
create index invocation_charged on invocation (charged) where charged is not null;
alter table quota add column id integer;
alter table quota add column from_seq integer not null default 0;
alter table quota add column carried integer not null default 0;  -- rows that retention has deleted since
create unique index quota_id on quota (id);
update quota set id = numbered.id, carried = used, from_seq = (select coalesce(max(seq), 0) + 1 from invocation)
    from (select tool, caller, run, per, row_number() over () as id from quota where per != 'run') as numbered
    where (quota.tool, quota.caller, quota.run, quota.per) = (numbered.tool, numbered.caller, numbered.run, numbered.per);

-- The writer remembers the counters it last wrote. Before it counts on from there it puts those that another process
-- has moved since in here, which cannot be done: the commit fails, and it reads them again.
create table quota_moved (never integer constraint quota_moved check (0)) strict;
