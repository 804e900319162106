-- Calls by the hour of their start, so that counts of long times need not read the calls.
create table usage_hour (
    hour         bigint  primary key,       -- hours since 1970
    counts       text    not null,          -- JSON, as in SQLite
    counted_at   timestamptz not null default clock_timestamp()
);
-- Hours with calls that were written, changed or deleted late. Such an hour counts no calls until it is counted again: that deletes its rows
-- here, and then reads the calls. A row becomes visible together with its call. So a count misses no call, and no commit waits for a count.
create table usage_late (
    hour         bigint  not null,
    transaction  bigint  not null,
    primary key (hour, transaction)
);

create function note_late_call() returns trigger language plpgsql as $$
begin
    insert into toolcrib.usage_late values (case when tg_op = 'DELETE' then old.started_at else new.started_at end / 3600000, txid_current())
        on conflict do nothing;
    return null;
end $$;
-- An hour is counted an hour after its end. Calls of the last 30 minutes are never late: a transaction may take the time between. These are
-- triggers, so that replicas of earlier versions note their late calls, too.
create trigger invocation_added_late after insert on invocation for each row
    when (to_timestamp(new.started_at / 1000) < clock_timestamp() - interval '30 minutes') execute function note_late_call();
create trigger invocation_changed_late after update of state, count on invocation for each row
    when (to_timestamp(new.started_at / 1000) < clock_timestamp() - interval '30 minutes') execute function note_late_call();
create trigger invocation_deleted_late after delete on invocation for each row
    when (to_timestamp(old.started_at / 1000) < clock_timestamp() - interval '30 minutes') execute function note_late_call();

-- Finds calls that waited for a person: they start long after they got their ids.
create index approval_expires on approval (expires_at, id);

-- As before, and notes the hours of the dropped calls.
create or replace function drop_partition_1(p_before date, p_now bigint) returns boolean language plpgsql as $$
declare
    v_name text;
    v_protected boolean;
    v_ids bigint[];
    v_calls bigint[];
begin
    perform pg_advisory_xact_lock(1413698114, 1);
    for v_name in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
            where i.inhparent = 'invocation'::regclass and c.relname ~ '^invocation_[0-9]{8}$'
            and to_date(right(c.relname, 8), 'YYYYMMDD') < p_before order by 1
    loop
        execute format('select exists (select 1 from %I where state = ''reserved'') or exists (select 1 from key_holder k join %I i on i.id = k.invocation
            where k.held_until > $1)', v_name, v_name) into v_protected using p_now;
        if not v_protected then
            -- The calls have ended, so they can be counted before the partition is locked.
            execute format('select array_agg(id), array_agg(calls) from (select q.id, count(*) as calls from %I i
                cross join unnest(i.charged) as one (counter) join quota q on q.id = one.counter and i.seq >= q.from_seq
                where i.charged is not null group by q.id) as counted', v_name) into v_ids, v_calls;
            execute format('insert into usage_late select distinct started_at / 3600000, txid_current() from %I on conflict do nothing', v_name);
            perform 1 from quota where id = any (v_ids) order by id for update;
            update quota set carried = carried + gone.calls from unnest(v_ids, v_calls) as gone (id, calls) where quota.id = gone.id;
            execute format('alter table invocation detach partition %I', v_name);
            execute format('drop table %I', v_name);
            return true;
        end if;
    end loop;
    return false;
end $$;
