-- A new counter has no rows. With the number 0, a check would read all charged rows of the ledger for it.
alter table quota alter column from_seq set default nextval('charge_seq');

-- As before, but no check reads more than about a million rows, because calls wait for its locks. If there are more, it
-- counts the oldest ones for good, and leaves the comparison to a later check.
create or replace function verify_counters_1() returns bigint language plpgsql as $$
declare
    v_from bigint;
    v_to bigint;
    v_last bigint;
    v_rows bigint;
    v_drift bigint;
begin
    if not pg_try_advisory_xact_lock(1413698114, 4) then
        return null;
    end if;
    -- Charged rows are written under the locks of their counters or blocks, so all that have a number are visible.
    perform 1 from quota where per <> 'run' order by id for update;
    perform 1 from unit_block order by counter, replica for update;
    select coalesce(min(from_seq), 0) into v_from from quota where per <> 'run';
    select count(*), max(seq) into v_rows, v_last from
        (select seq from invocation where charged is not null and seq >= v_from order by seq limit 1000001) as first;
    if v_rows <= 1000000 then
        select coalesce(sum(abs(q.used - q.carried - q.lost_units - coalesce(c.calls, 0) - coalesce(b.units, 0))), 0) into v_drift
            from quota q
            left join (select q.id, count(*) as calls from invocation i cross join unnest(i.charged) as one (counter)
                join quota q on q.id = one.counter and i.seq >= q.from_seq where i.charged is not null and i.seq >= v_from group by q.id) as c
                on c.id = q.id
            left join (select counter, window_start, sum(units) as units from unit_block group by counter, window_start) as b
                on b.counter = q.id and b.window_start = q.window_start
            where q.per <> 'run';
        v_last := null;
    end if;
    if v_rows >= 10000 and coalesce(v_drift, 0) = 0 then
        -- Calls that are still reserved may be refunded, so they are counted again.
        select least((select min(seq) from invocation where state = 'reserved' and charged is not null),
            coalesce(v_last, (select last_value + 1 from charge_seq))) into v_to;
        with counted as (
            select q.id, count(*) as calls from invocation i cross join unnest(i.charged) as one (counter)
                join quota q on q.id = one.counter and i.seq >= q.from_seq
                where i.charged is not null and i.seq >= v_from and i.seq < v_to group by q.id
        )
        update quota q set carried = q.carried + coalesce((select calls from counted where counted.id = q.id), 0), from_seq = v_to
            where q.per <> 'run' and q.from_seq < v_to;
    end if;
    return v_drift;
end $$;

-- As before, but what changed before the locks were taken is noticed: a new window of a counter, and a call that started late.
create or replace function drop_partition_1(p_before date, p_now bigint) returns boolean language plpgsql as $$
declare
    v_name text;
    v_protected boolean;
    v_ids bigint[];
    v_from bigint[];
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
            loop
                -- The calls have ended, so they can be counted before the partition is locked.
                execute format('select array_agg(id), array_agg(from_seq), array_agg(calls) from (select q.id, q.from_seq, count(*) as calls from %I i
                    cross join unnest(i.charged) as one (counter) join quota q on q.id = one.counter and i.seq >= q.from_seq
                    where i.charged is not null group by q.id, q.from_seq) as counted', v_name) into v_ids, v_from, v_calls;
                perform 1 from quota where id = any (v_ids) order by id for update;
                exit when not exists (select 1 from unnest(v_ids, v_from) as counted (id, from_seq)
                    join quota q on q.id = counted.id where q.from_seq <> counted.from_seq);
            end loop;
            execute format('insert into usage_late select distinct started_at / 3600000, txid_current() from %I on conflict do nothing', v_name);
            update quota set carried = carried + gone.calls from unnest(v_ids, v_calls) as gone (id, calls) where quota.id = gone.id;
            execute format('alter table invocation detach partition %I', v_name);
            execute format('select exists (select 1 from %I where state = ''reserved'')', v_name) into v_protected;
            if v_protected then
                -- The caller tries again later, as after a lock that is held.
                raise exception 'a call of the partition has just started' using errcode = 'lock_not_available';
            end if;
            execute format('drop table %I', v_name);
            return true;
        end if;
    end loop;
    return false;
end $$;
