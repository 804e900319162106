-- The ledger that several replicas share. Times are Unix milliseconds, as in SQLite, except where the server's own clock is used.

-- One row for each process that has opened the ledger. A process without `ended_at` owns its slot.
create table replica (
    boot         uuid    primary key,
    slot         integer not null,
    host         text    not null,
    version      text    not null,
    started_at   bigint  not null,
    seen_at      timestamptz not null default clock_timestamp(),
    running      integer not null default 0,    -- calls under way at `seen_at`
    attachment   bigint  not null default 0,    -- number of the connection that may commit
    last_batch   bigint  not null default 0,    -- number of the last commit
    ended_at     timestamptz                    -- closed, or settled by another replica
) with (fillfactor = 20);
create unique index replica_slot on replica (slot) where ended_at is null;

-- One row per call. Ids are UUIDv7, so a range of ids is a range of time, and retention drops whole partitions.
create table invocation (
    id              uuid    not null primary key,
    tool            text    not null,
    caller          text    not null,
    run_id          text,
    tool_use_id     text,
    state           text    not null check (state in
        ('reserved', 'succeeded', 'failed', 'timed_out', 'cancelled', 'refused', 'unknown')),
    kind            text,
    effect          text    not null,
    cache           text    not null,
    attempts        integer not null,
    started_at      bigint  not null,
    duration_us     bigint,
    arguments       text    not null,
    result          text,
    origin          uuid,
    meta            text,
    idempotency_key text,
    fingerprint     text,
    key_until       bigint,
    parent          uuid,
    count           bigint  not null default 1,
    detail          text,
    reserved        boolean not null,           -- committed before its tool ran
    charged         bigint[],                   -- counters that have a unit of this call
    seq             bigint,                     -- position among charged rows; see quota.from_seq
    replica         uuid    not null
) partition by range (id);
create index invocation_tool    on invocation (tool, id);
create index invocation_caller  on invocation (caller, id);
create index invocation_run     on invocation (run_id, id) where run_id is not null;
create index invocation_keyed   on invocation (idempotency_key, id) where idempotency_key is not null;
create index invocation_parent  on invocation (parent, id) where parent is not null;
create index invocation_faults  on invocation (state, id) where state not in ('reserved', 'succeeded');
create index invocation_open    on invocation (replica, id) where state = 'reserved';
create index invocation_charged on invocation (seq) include (charged) where charged is not null;
-- Calls of days that have no partition of their own.
create table invocation_other partition of invocation default;

create table attempt (
    invocation   uuid    not null,
    attempt      integer not null,
    kind         text    not null,
    message      text    not null,
    duration_us  bigint  not null,
    primary key (invocation, attempt)
);

-- Held idempotency keys. The primary key makes a second holder impossible.
create table key_holder (
    idempotency_key text   not null,
    caller          text   not null,
    tool            text   not null,
    invocation      uuid   not null,
    held_until      bigint not null,
    primary key (idempotency_key, caller, tool)
);
create index key_holder_invocation on key_holder (invocation);

-- Units of limits. `used` = `carried` + `lost_units` + rows from `from_seq` on that have the counter's id + units of its blocks.
create sequence charge_seq;
create table quota (
    id           bigint  generated always as identity primary key,
    tool         text    not null,              -- '': over all tools of the caller
    caller       text    not null,              -- '': over all callers of the tool
    run          text    not null,              -- '': not per run, or the caller's unnamed run
    per          text    not null,
    window_start bigint  not null default 0,
    used         bigint  not null default 0 check (used >= 0),
    calls        bigint  check (used <= calls), -- the limit of the last counted call
    counted_at   bigint  not null default 0,
    from_seq     bigint  not null default 0,
    carried      bigint  not null default 0,    -- rows that retention has deleted
    lost_units   bigint  not null default 0,    -- of blocks whose replica has ended
    recalled_at  timestamptz,                   -- when a replica last asked the others for their free units
    grants_from  timestamptz,                   -- before this time no free units are set aside
    unique (tool, caller, run, per)
) with (fillfactor = 50);
create index quota_run on quota (counted_at) where per = 'run';

-- Units that a replica has set aside: those of its running calls whose rows are written with their ends, and free ones.
-- `has_free` becomes true only under the lock of the counter. Whoever begins a new window of a counter deletes its blocks first:
-- the lock of the block then tells whether a row belongs to the old window.
create table unit_block (
    replica      uuid    not null,
    counter      bigint  not null,
    window_start bigint  not null,
    units        bigint  not null check (units >= 0),
    has_free     boolean not null,              -- the replica may have units that no call has taken
    primary key (replica, counter)
) with (fillfactor = 50);
create index unit_block_counter on unit_block (counter);

-- Totals, with a row for each slot, so that replicas do not wait for each other's commits.
create table usage_total (
    caller       text    not null,
    tool         text    not null,
    slot         integer not null,
    calls        bigint  not null,
    succeeded    bigint  not null,
    failed       bigint  not null,
    refused      bigint  not null,
    cache_hits   bigint  not null,
    primary key (caller, tool, slot)
) with (fillfactor = 50);
create table usage_latency (
    caller       text    not null,
    tool         text    not null,
    bucket       bigint  not null,
    slot         integer not null,
    calls        bigint  not null,
    primary key (caller, tool, bucket, slot)
) with (fillfactor = 50);

create table stored_result (
    key          bytea   primary key,
    tool         text    not null,
    origin       uuid    not null,
    result       text    not null,
    stored_at    bigint  not null,
    expires_at   bigint  not null
);
create index stored_result_tool    on stored_result (tool);
create index stored_result_expires on stored_result (expires_at);

create table tool_switch (
    tool         text    primary key,
    enabled      boolean not null
);
create table registered_tool (
    name          text   primary key,
    definition    text   not null,
    registered_by text   not null,
    registered_at bigint not null
);

-- Calls that need the approval of a person. The row in `invocation` is written when such a call starts, or when it can no longer
-- start.
create table approval (
    id              uuid    primary key,       -- the call
    tool            text    not null,
    caller          text    not null,
    state           text    not null check (state in ('waiting', 'approved', 'started', 'denied', 'expired', 'withdrawn')),
    idempotency_key text,
    approvers       text    not null,      -- callers that may decide, each between line feeds
    request         text    not null,      -- JSON: what a person sees
    call            text,                  -- JSON: what is needed to run the call; null: only the memory of `runner` has that
    requested_at    bigint  not null,      -- Unix milliseconds, as all times
    expires_at      bigint  not null,
    decided_at      bigint,
    decided_by      text,
    note            text,
    changed         text,                  -- JSON: the arguments that were approved instead
    runner          text    not null,      -- the process that acts on the state
    done            boolean not null default false
);
-- A key belongs to one call that waits or starts. `done`: the key of the call's own row takes over.
create unique index approval_key on approval (idempotency_key, caller, tool) where idempotency_key is not null and not done;
create index approval_open on approval (id) where not done;
create index approval_tool on approval (tool, id);

-- Changes that concern all replicas, for an hour. Replicas read them when they are notified, and every few seconds.
create table announcement (
    seq          bigint  generated always as identity primary key,
    sender       uuid    not null,
    change       jsonb   not null,
    made_at      timestamptz not null default clock_timestamp()
);
-- Announces a change in the transaction that makes the change. The lock makes the numbers visible in their order.
create function announce_1(p_sender uuid, p_change jsonb) returns void language plpgsql as $$
begin
    perform pg_advisory_xact_lock(1413698114, 3);
    insert into announcement (sender, change) values (p_sender, p_change);
    delete from announcement where made_at < clock_timestamp() - interval '1 hour';
    perform pg_notify('toolcrib', '');
end $$;

-- Ids of the counters of these calls, which give their units back.
create function counters_of(p_calls uuid[]) returns setof bigint language sql stable as $$
    select distinct unnest(charged) from invocation where id = any (p_calls) and state = 'reserved';
$$;

-- Gives the units of these calls back, if they are part of the counters' current windows.
create function refund_units(p_calls uuid[]) returns void language plpgsql as $$
begin
    update quota set used = quota.used - back.units from
        (select q.id, count(*) as units from invocation i cross join unnest(i.charged) as one (counter)
            join quota q on q.id = one.counter and i.seq >= q.from_seq
            where i.id = any (p_calls) and i.state = 'reserved' and i.charged is not null group by q.id) as back
        where quota.id = back.id;
    update invocation set charged = null where id = any (p_calls) and state = 'reserved' and charged is not null;
end $$;

-- One commit of a replica. All parts are optional, and JSON arrays:
--   p_counters      [tool, caller, run, per, newest start of a window, free units to set aside, limit] of each counter that the calls name
--                   by its position, and of others of which this replica wants free units
--   p_reservations  rows of starting calls, each with `charges`: [position, start of the window, limit]; `final`: it has waited long enough
--   p_units         {id, at, charges, final}: calls that take units without a row
--   p_ends          rows of ended calls; `settles`: the call was reserved or holds units; `refunds`: it gives its units back;
--                   `held`: [counter, start of the window] of units that go from the replica's blocks to the row
--   p_voids         calls whose reservation was not acknowledged: undone if it was committed
--   p_blocks        [counter, start of the window, units that stay after the ends, whether some of them are free, whether fewer stay than before]
--   p_all           p_blocks names all blocks of this replica: others go back as a whole
--   p_looks         the answer names the blocks whose free units other replicas ask for
-- The answer has a decision for each reservation and for each call of p_units:
--   [[start, used], …], {"full": position of the charge, "start", "used"}, {"holder": id of the call that has the key}, or {"wait": true}:
--   a limit is reached, but replicas have free units, and were asked for them
-- in `lost` the ended calls that another replica has settled, in `counters` [id, start, used, free units that were added] for each of p_counters,
-- in `gone` the [counter, start] of blocks that do not exist any more, and in `recalled` the counters that p_looks asks for.
create function commit_batch_1(
    p_boot uuid, p_attachment bigint, p_batch bigint, p_running integer, p_counters jsonb, p_reservations jsonb, p_units jsonb, p_ends jsonb, p_voids uuid[],
    p_attempts jsonb, p_results jsonb, p_refusals jsonb, p_latencies jsonb, p_blocks jsonb, p_all boolean, p_looks boolean
) returns jsonb language plpgsql as $$
declare
    v_slot integer;
    v_last bigint;
    v_attachment bigint;
    v_previous uuid;
    v_ended integer;
    v_ids bigint[]; v_starts bigint[]; v_used bigint[]; v_from bigint[]; v_limits bigint[]; v_at bigint[]; v_new boolean[];
    v_extra bigint[];
    v_settled uuid[]; v_refunded uuid[];
    v_reserved jsonb[] := '{}'; v_taken jsonb[] := '{}';
    v_call record; v_charge jsonb; v_position integer; v_full jsonb; v_counted jsonb; v_counters bigint[];
    v_held_ids bigint[]; v_held_starts bigint[]; v_held_units bigint[]; v_moved_ids bigint[]; v_moved_starts bigint[]; v_seq bigint;
    v_newest bigint[]; v_wanted bigint[]; v_limit bigint[]; v_units bigint[]; v_free bigint[]; v_waits boolean[];
    v_wait boolean; v_waiting boolean := false; v_block_ids bigint[] := '{}'; v_waiting_keys text[] := '{}'; v_recalled bigint[] := '{}';
    v_asked_before integer := 0; v_gone jsonb := '[]'; v_asked jsonb := '[]';
    v_holder uuid;
    v_admitted uuid[] := '{}'; v_admitted_charged text[] := '{}'; v_admitted_seq bigint[] := '{}';
    v_decision jsonb;
    v_lost uuid[] := '{}';
begin
    -- A replica that was settled by another one commits nothing any more.
    select slot, attachment, last_batch into v_slot, v_attachment, v_last from replica where boot = p_boot and ended_at is null for update;
    if not found then
        raise exception 'replica_ended' using errcode = 'TC001';
    end if;
    -- Nor does an earlier connection, whose commit may arrive late.
    if (p_attachment, p_batch) is distinct from (v_attachment, v_last + 1) then
        raise exception 'batch %.% follows batch %.%', p_attachment, p_batch, v_attachment, v_last using errcode = 'TC002';
    end if;

    -- Locks are taken in one order in all replicas: new counters by name, counters by id, blocks by counter and replica, keys by hash.
    if p_ends is not null then
        select array_agg(id), array_agg(start), array_agg(units) into v_held_ids, v_held_starts, v_held_units from
            (select (h->>0)::bigint as id, (h->>1)::bigint as start, count(*) as units
                from jsonb_to_recordset(p_ends) as e (held jsonb) cross join jsonb_array_elements(e.held) as h group by 1, 2) as held;
        -- A refused call that has a reservation did not get the answer to it in time.
        select array_agg(id), array_agg(id) filter (where refunds or state = 'refused') into v_settled, v_refunded
            from jsonb_to_recordset(p_ends) as one (id uuid, state text, settles boolean, refunds boolean) where settles or state = 'refused';
    end if;
    v_refunded := v_refunded || p_voids;
    if v_refunded is not null then
        select array_agg(id) into v_extra from counters_of(v_refunded) as id;
    end if;
    if p_blocks is not null then
        v_block_ids := array(select (b->>0)::bigint from jsonb_array_elements(p_blocks) as b);
    end if;
    if p_all then
        v_extra := v_extra || array(select counter from unit_block where replica = p_boot);
    elsif p_blocks is not null then
        v_extra := v_extra || array(select (b->>0)::bigint from jsonb_array_elements(p_blocks) as b where (b->>4)::boolean);
    end if;
    loop
        if p_counters is not null then
            insert into quota (tool, caller, run, per)
                select c->>0, c->>1, c->>2, c->>3 from jsonb_array_elements(p_counters) with ordinality as one (c, n)
                where not exists (select 1 from quota where tool = c->>0 and caller = c->>1 and run = c->>2 and per = c->>3)
                order by n on conflict do nothing;
            select array_agg(q.id order by n) into v_ids from jsonb_array_elements(p_counters) with ordinality as one (c, n)
                join quota q on q.tool = c->>0 and q.caller = c->>1 and q.run = c->>2 and q.per = c->>3;
        end if;
        if v_ids is not null or v_extra is not null then
            perform 1 from quota where id = any (coalesce(v_ids, '{}') || coalesce(v_extra, '{}')) order by id for update;
        end if;
        -- A reset may have deleted a counter before it was locked.
        exit when p_counters is null
            or (select count(*) from quota where id = any (v_ids)) = jsonb_array_length(p_counters);
    end loop;
    if v_ids is not null then
        select array_agg((c->>4)::bigint order by n), array_agg((c->>5)::bigint order by n), array_agg((c->>6)::bigint order by n),
                array_agg(0 order by n), array_agg(0 order by n), array_agg(false order by n)
            into v_newest, v_wanted, v_limit, v_units, v_free, v_waits from jsonb_array_elements(p_counters) with ordinality as one (c, n);
    end if;
    if v_ids is not null or v_held_ids is not null or p_blocks is not null or p_all then
        perform 1 from unit_block b where b.counter in
                (select q.id from unnest(v_ids, v_newest) as one (id, newest) join quota q on q.id = one.id and q.window_start < one.newest)
            or b.replica = p_boot and (p_all or b.counter = any (v_ids || v_held_ids || v_block_ids))
            order by b.counter, b.replica for update;
    end if;

    -- Units of ended calls go from the blocks to the rows. The blocks are locked, so the rows get a number of the window of the blocks.
    if v_held_ids is not null then
        v_seq := nextval('charge_seq');
        with moved as (
            update unit_block b set units = b.units - h.units from unnest(v_held_ids, v_held_starts, v_held_units) as h (id, start, units)
                where b.replica = p_boot and b.counter = h.id and b.window_start = h.start returning b.counter, b.window_start
        )
        select array_agg(counter), array_agg(window_start) into v_moved_ids, v_moved_starts from moved;
        select coalesce(jsonb_agg(jsonb_build_array(id, start)), '[]') into v_gone from unnest(v_held_ids, v_held_starts) as h (id, start)
            where not exists (select 1 from unit_block b where b.replica = p_boot and b.counter = h.id and b.window_start = h.start);
    end if;
    if p_blocks is not null or p_all then
        with kept as (
            select (k->>0)::bigint as id, (k->>1)::bigint as start, (k->>2)::bigint as units, (k->>3)::boolean as has_free
                from jsonb_array_elements(p_blocks) as k
        ), changed as (
            select b.counter, b.window_start, greatest(b.units - coalesce(k.units, 0), 0) as back, coalesce(k.has_free, false) as has_free,
                    b.has_free as had_free
                from unit_block b left join kept k on k.id = b.counter and k.start = b.window_start
                where b.replica = p_boot and (p_all or k.id is not null)
        ), updated as (
            update unit_block b set units = b.units - c.back, has_free = c.has_free from changed c
                where b.replica = p_boot and b.counter = c.counter
        ), returned as (
            update quota q set used = q.used - c.back from changed c where q.id = c.counter and q.window_start = c.window_start and c.back > 0
        ), told as (
            -- Replicas that have asked for the free units wait for this.
            select pg_notify('toolcrib_units', 'freed ' || c.counter) from changed c join quota q on q.id = c.counter
                where (c.back > 0 or c.had_free and not c.has_free) and q.recalled_at > clock_timestamp() - interval '10 seconds'
        ), missing as (
            select k.id, k.start from kept k where not exists (select 1 from changed c where c.counter = k.id and c.window_start = k.start)
        )
        select v_gone || coalesce((select jsonb_agg(jsonb_build_array(id, start)) from missing), '[]') into v_gone from (select count(*) from told) as t;
    end if;
    if v_refunded is not null then
        perform refund_units(v_refunded);
    end if;
    if p_voids is not null then
        -- A call that another replica has settled stays as it is: others may have seen its outcome already.
        delete from key_holder where invocation in (select id from invocation where id = any (p_voids) and state = 'reserved');
        with gone as (delete from invocation where id = any (p_voids) and state = 'reserved' returning caller, tool)
        update usage_total t set calls = t.calls - g.calls
            from (select caller, tool, count(*) as calls from gone group by caller, tool) as g
            where t.caller = g.caller and t.tool = g.tool and t.slot = v_slot;
    end if;

    if v_ids is not null then
        select array_agg(q.window_start order by n), array_agg(q.used order by n), array_agg(null::bigint order by n),
                array_agg(q.calls order by n), array_agg(q.counted_at order by n), array_agg(false order by n)
            into v_starts, v_used, v_from, v_limits, v_at, v_new
            from unnest(v_ids) with ordinality as one (id, n) join quota q on q.id = one.id;
    end if;

    if p_reservations is not null then
        perform pg_advisory_xact_lock(hash) from (select distinct hashtextextended(concat_ws(chr(1), key, caller, tool), 1413698114) as hash
            from jsonb_to_recordset(p_reservations) as one (idempotency_key text, caller text, tool text, key_until bigint)
            cross join lateral (select idempotency_key as key) as named where key_until is not null and key is not null order by 1) as keys;
    end if;
    for v_call in
        select 1 as part, n, one.id, started_at as at, idempotency_key, caller, tool, key_until, charges, final
            from rows from (jsonb_to_recordset(p_reservations) as (id uuid, started_at bigint, idempotency_key text, caller text, tool text,
                key_until bigint, charges jsonb, final boolean))
                with ordinality as one (id, started_at, idempotency_key, caller, tool, key_until, charges, final, n)
        union all
        select 2, n, one.id, at, null, null, null, null, charges, final
            from rows from (jsonb_to_recordset(p_units) as (id uuid, at bigint, charges jsonb, final boolean))
                with ordinality as one (id, at, charges, final, n)
        order by part, n
    loop
        v_holder := null;
        if v_call.key_until is not null and v_call.idempotency_key is not null then
            select invocation into v_holder from key_holder where idempotency_key = v_call.idempotency_key and caller = v_call.caller
                and tool = v_call.tool and held_until > v_call.at;
        end if;
        v_full := null;
        v_wait := false;
        if v_holder is null then
            -- A call does not overtake one that waits for the same counter or key.
            if v_waiting then
                v_wait := concat_ws(chr(1), v_call.idempotency_key, v_call.caller, v_call.tool) = any (v_waiting_keys)
                    or exists (select 1 from jsonb_array_elements(v_call.charges) as c where v_waits[(c->>0)::integer + 1]);
            end if;
            -- Before a window begins, the free units of the window before are called back. So no unit of it is handed out afterwards.
            if v_call.final is not true then
                v_recalled := v_recalled || array(select b.counter from jsonb_array_elements(v_call.charges) as c
                    join unit_block b on b.counter = v_ids[(c->>0)::integer + 1] and b.has_free
                    where b.window_start < (c->>1)::bigint and v_starts[(c->>0)::integer + 1] < (c->>1)::bigint);
                v_wait := v_wait or cardinality(v_recalled) > v_asked_before;
                v_asked_before := cardinality(v_recalled);
            end if;
            for v_charge, v_position in select c, n - 1 from jsonb_array_elements(v_call.charges) with ordinality as one (c, n) loop
                if v_starts[(v_charge->>0)::integer + 1] >= (v_charge->>1)::bigint
                        and v_used[(v_charge->>0)::integer + 1] >= (v_charge->>2)::bigint or (v_charge->>2)::bigint = 0 then
                    if (v_charge->>2)::bigint > 0 and v_call.final is not true and exists (select 1 from unit_block b where has_free
                            and counter = v_ids[(v_charge->>0)::integer + 1] and b.window_start = v_starts[(v_charge->>0)::integer + 1]) then
                        v_wait := true;
                        v_recalled := array_append(v_recalled, v_ids[(v_charge->>0)::integer + 1]);
                        v_asked_before := cardinality(v_recalled);
                        continue;
                    end if;
                    v_full := jsonb_build_object('full', v_position,
                        'start', greatest(v_starts[(v_charge->>0)::integer + 1], (v_charge->>1)::bigint),
                        'used', case when v_starts[(v_charge->>0)::integer + 1] >= (v_charge->>1)::bigint
                            then v_used[(v_charge->>0)::integer + 1] else 0 end);
                    exit;
                end if;
            end loop;
        end if;
        if v_holder is not null then
            v_decision := jsonb_build_object('holder', v_holder);
        elsif v_full is not null then
            v_decision := v_full;
        elsif v_wait then
            v_decision := '{"wait": true}';
            v_waiting := true;
            if v_call.key_until is not null and v_call.idempotency_key is not null then
                v_waiting_keys := array_append(v_waiting_keys, concat_ws(chr(1), v_call.idempotency_key, v_call.caller, v_call.tool));
            end if;
            for v_charge in select c from jsonb_array_elements(v_call.charges) as one (c) loop
                v_waits[(v_charge->>0)::integer + 1] := true;
            end loop;
        else
            v_counted := '[]'; v_counters := '{}';
            for v_charge in select c from jsonb_array_elements(v_call.charges) as one (c) loop
                v_position := (v_charge->>0)::integer + 1;
                if v_starts[v_position] < (v_charge->>1)::bigint then
                    v_starts[v_position] := (v_charge->>1)::bigint;
                    v_used[v_position] := 0;
                    v_units[v_position] := 0;
                    delete from unit_block where counter = v_ids[v_position];
                    v_from[v_position] := nextval('charge_seq');
                    v_new[v_position] := true;
                end if;
                v_used[v_position] := v_used[v_position] + 1;
                v_limits[v_position] := (v_charge->>2)::bigint;
                v_at[v_position] := v_call.at;
                v_counted := v_counted || jsonb_build_array(jsonb_build_array(v_starts[v_position], v_used[v_position]));
                v_counters := array_append(v_counters, v_ids[v_position]);
                if v_call.part = 2 then
                    v_units[v_position] := v_units[v_position] + 1;
                end if;
            end loop;
            v_decision := v_counted;
            if v_call.part = 1 then
                v_admitted := array_append(v_admitted, v_call.id);
                v_admitted_charged := array_append(v_admitted_charged, case when v_counters <> '{}' then v_counters::text end);
                v_admitted_seq := array_append(v_admitted_seq, case when v_counters <> '{}' then nextval('charge_seq') end);
                if v_call.key_until is not null and v_call.idempotency_key is not null then
                    select invocation into v_previous from key_holder
                        where idempotency_key = v_call.idempotency_key and caller = v_call.caller and tool = v_call.tool;
                    if found then
                        -- The row of an earlier holder no longer holds the key.
                        update invocation set key_until = null where id = v_previous;
                    end if;
                    insert into key_holder values (v_call.idempotency_key, v_call.caller, v_call.tool, v_call.id, v_call.key_until)
                        on conflict (idempotency_key, caller, tool) do update
                        set invocation = excluded.invocation, held_until = excluded.held_until;
                end if;
            end if;
        end if;
        if v_call.part = 1 then
            v_reserved := array_append(v_reserved, v_decision);
        else
            v_taken := array_append(v_taken, v_decision);
        end if;
    end loop;
    -- Free units. Near the limit there are few, so that replicas seldom have to ask each other for them.
    for v_position in select n from unnest(v_wanted) with ordinality as one (wanted, n) where wanted > 0 loop
        if v_starts[v_position] = v_newest[v_position] and not v_waits[v_position]
                and not exists (select 1 from quota where id = v_ids[v_position] and grants_from > clock_timestamp()) then
            v_free[v_position] := least(v_wanted[v_position],
                greatest(least(v_limit[v_position], v_limits[v_position]) - v_used[v_position], 0) / 4);
            v_used[v_position] := v_used[v_position] + v_free[v_position];
        end if;
    end loop;
    if v_ids is not null then
        insert into unit_block as b
            select p_boot, id, start, units + free, free > 0 from unnest(v_ids, v_starts, v_units, v_free) as one (id, start, units, free)
                where units + free > 0 order by id
            on conflict (replica, counter) do update set units = b.units + excluded.units, has_free = b.has_free or excluded.has_free;
        update quota set recalled_at = clock_timestamp(), grants_from = greatest(grants_from, clock_timestamp() + interval '200 milliseconds')
            where id = any (v_recalled);
        perform pg_notify('toolcrib_units', 'recall ' || id) from (select distinct unnest(v_recalled) as id) as one;
        update quota q set window_start = one.start, used = one.used, calls = one.calls, counted_at = one.at,
                from_seq = coalesce(one.from_seq, q.from_seq), carried = case when one.is_new then 0 else q.carried end,
                lost_units = case when one.is_new then 0 else q.lost_units end,
                grants_from = case when one.is_new and q.grants_from < clock_timestamp() + interval '1 second' then null else q.grants_from end
            from unnest(v_ids, v_starts, v_used, v_from, v_limits, v_at, v_new) as one (id, start, used, from_seq, calls, at, is_new)
            where q.id = one.id and (q.used, q.window_start) is distinct from (one.used, one.start);
    end if;

    if v_admitted <> '{}' then
        insert into invocation (id, tool, caller, run_id, tool_use_id, state, effect, cache, attempts, started_at, arguments, idempotency_key,
                fingerprint, key_until, parent, reserved, charged, seq, replica)
            select r.id, tool, caller, run_id, tool_use_id, 'reserved', effect, cache, attempts, started_at, arguments, idempotency_key,
                fingerprint, key_until, parent, true, a.charged::bigint[], a.seq, p_boot
            from jsonb_to_recordset(p_reservations) as r (id uuid, tool text, caller text, run_id text, tool_use_id text, effect text,
                cache text, attempts integer, started_at bigint, arguments text, idempotency_key text, fingerprint text, key_until bigint,
                parent uuid)
            join unnest(v_admitted, v_admitted_charged, v_admitted_seq) as a (id, charged, seq) on a.id = r.id;
        insert into usage_total
            select caller, tool, v_slot, count(*), 0, 0, 0, 0 from jsonb_to_recordset(p_reservations) as r (id uuid, caller text, tool text)
                where id = any (v_admitted) group by caller, tool
            on conflict (caller, tool, slot) do update set calls = usage_total.calls + excluded.calls;
    end if;

    if p_ends is not null then
        with charged as (
            select e.id as invocation, array_agg(m.id) as counters
                from jsonb_to_recordset(p_ends) as e (id uuid, held jsonb) cross join jsonb_array_elements(e.held) as h
                join unnest(v_moved_ids, v_moved_starts) as m (id, start) on m.id = (h->>0)::bigint and m.start = (h->>1)::bigint group by e.id
        ), ended as (
            insert into invocation as i (id, tool, caller, run_id, tool_use_id, state, kind, effect, cache, attempts, started_at, duration_us,
                    arguments, result, origin, meta, idempotency_key, fingerprint, key_until, parent, count, detail, reserved, charged, seq, replica)
                select e.id, tool, caller, run_id, tool_use_id, state, kind, effect, cache, attempts, started_at, duration_us, arguments, result,
                    origin, meta, idempotency_key, fingerprint, key_until, parent, count, detail, false, c.counters,
                    case when c.counters is not null then v_seq end, p_boot
                from jsonb_to_recordset(p_ends) as e (id uuid, tool text, caller text, run_id text, tool_use_id text, state text, kind text,
                    effect text, cache text, attempts integer, started_at bigint, duration_us bigint, arguments text, result text, origin uuid,
                    meta text, idempotency_key text, fingerprint text, key_until bigint, parent uuid, count bigint, detail text)
                left join charged c on c.invocation = e.id
                on conflict (id) do update set state = excluded.state, kind = excluded.kind, cache = excluded.cache, attempts = excluded.attempts,
                    duration_us = excluded.duration_us, arguments = excluded.arguments, result = excluded.result, origin = excluded.origin,
                    meta = excluded.meta, fingerprint = excluded.fingerprint, key_until = excluded.key_until, detail = excluded.detail
                where i.state = 'reserved'
                returning i.id, i.caller, i.tool, i.state, i.cache, i.reserved, i.key_until
        ), released as (
            delete from key_holder k using ended e where e.reserved and k.invocation = e.id and e.key_until is null
        ), kept as (
            update key_holder k set held_until = e.key_until from ended e where e.reserved and k.invocation = e.id and e.key_until is not null
        ), counted as (
          insert into usage_total
            select caller, tool, v_slot, count(*) filter (where not reserved), count(*) filter (where state = 'succeeded'),
                count(*) filter (where state in ('failed', 'timed_out', 'cancelled', 'unknown')), count(*) filter (where state = 'refused'),
                count(*) filter (where cache in ('hit', 'joined') and state <> 'refused') from ended group by caller, tool
            on conflict (caller, tool, slot) do update set calls = usage_total.calls + excluded.calls,
                succeeded = usage_total.succeeded + excluded.succeeded, failed = usage_total.failed + excluded.failed,
                refused = usage_total.refused + excluded.refused, cache_hits = usage_total.cache_hits + excluded.cache_hits
        )
        select count(*) into v_ended from ended where id = any (v_settled);
        if v_ended < cardinality(v_settled) then
            -- Calls that another replica has settled. Their callers must not get a result.
            select coalesce(array_agg(i.id), '{}') into v_lost from invocation i
                where i.id = any (v_settled) and i.state = 'unknown' and i.duration_us is null;
        end if;
    end if;

    if p_refusals is not null then
        update invocation i set count = r.count from jsonb_to_recordset(p_refusals) as r (id uuid, count bigint)
            where i.id = r.id and i.count < r.count;
        insert into usage_total
            select caller, tool, v_slot, sum(added), 0, 0, sum(added), 0
                from jsonb_to_recordset(p_refusals) as r (caller text, tool text, added bigint) group by caller, tool
            on conflict (caller, tool, slot) do update set calls = usage_total.calls + excluded.calls,
                refused = usage_total.refused + excluded.refused;
    end if;
    if p_attempts is not null then
        insert into attempt select * from jsonb_to_recordset(p_attempts)
            as a (invocation uuid, attempt integer, kind text, message text, duration_us bigint) on conflict do nothing;
    end if;
    if p_results is not null then
        insert into stored_result select decode(key, 'hex'), tool, origin, result, stored_at, expires_at
                from jsonb_to_recordset(p_results) as r (key text, tool text, origin uuid, result text, stored_at bigint, expires_at bigint)
                order by key
            on conflict (key) do update set tool = excluded.tool, origin = excluded.origin, result = excluded.result,
                stored_at = excluded.stored_at, expires_at = excluded.expires_at;
        delete from stored_result where key in (select key from stored_result where expires_at <=
            (select max(stored_at) from jsonb_to_recordset(p_results) as r (stored_at bigint)) limit 64 for update skip locked);
    end if;
    if p_latencies is not null then
        insert into usage_latency select caller, tool, bucket, v_slot, calls
                from jsonb_to_recordset(p_latencies) as l (caller text, tool text, bucket bigint, calls bigint)
            on conflict (caller, tool, bucket, slot) do update set calls = usage_latency.calls + excluded.calls;
    end if;
    if v_held_ids is not null or p_blocks is not null or p_all then
        delete from unit_block where replica = p_boot and units = 0 and (p_all or counter = any (v_held_ids || v_block_ids));
    end if;
    if p_looks then
        select coalesce(jsonb_agg(b.counter), '[]') into v_asked from unit_block b join quota q on q.id = b.counter
            where b.replica = p_boot and b.has_free and q.recalled_at > clock_timestamp() - interval '10 seconds';
    end if;
    update replica set last_batch = p_batch, running = p_running, seen_at = clock_timestamp() where boot = p_boot;
    return jsonb_build_object('reservations', to_jsonb(v_reserved), 'units', to_jsonb(v_taken), 'lost', to_jsonb(v_lost), 'gone', v_gone,
        'recalled', v_asked, 'counters', coalesce((select jsonb_agg(jsonb_build_array(id, start, used, free) order by n)
            from unnest(v_ids, v_starts, v_used, v_free) with ordinality as one (id, start, used, free, n)), '[]'));
end $$;

-- Asks the replicas for their free units of a tool's counters, before the counters are deleted. Returns the number of blocks that may have some.
create function recall_units_1(p_tool text, p_caller text) returns bigint language plpgsql as $$
declare
    v_ids bigint[];
    v_blocks bigint;
begin
    select array_agg(id) into v_ids from (select id from quota where (tool = p_tool and (p_caller is null or caller = p_caller))
        or (tool = '' and caller = p_caller) order by id for update) as named;
    update quota set recalled_at = clock_timestamp(), grants_from = clock_timestamp() + interval '10 seconds' where id = any (v_ids);
    perform pg_notify('toolcrib_units', 'recall ' || counter)
        from (select distinct counter from unit_block where counter = any (v_ids) and has_free) as one;
    select count(*) into v_blocks from unit_block where counter = any (v_ids) and has_free;
    return v_blocks;
end $$;

-- Deletes the counters of a tool, or only those of a caller, with their blocks. Returns their number.
create function reset_counters_1(p_tool text, p_caller text) returns bigint language plpgsql as $$
declare
    v_ids bigint[];
begin
    select coalesce(array_agg(id), '{}') into v_ids from (select id from quota where (tool = p_tool and (p_caller is null or caller = p_caller))
        or (tool = '' and caller = p_caller) order by id for update) as named;
    perform 1 from unit_block where counter = any (v_ids) order by counter, replica for update;
    delete from unit_block where counter = any (v_ids);
    delete from quota where id = any (v_ids);
    return cardinality(v_ids);
end $$;

-- Settles what an ended replica has left: its calls become `unknown` and stay charged. A write keeps its key until `p_key_until`, so that it
-- never runs again with that key; other calls release their keys. The units of its blocks stay used, as `lost_units`.
-- A replica has ended if its lock is free and it was not seen for p_grace_ms, or if it was not seen for p_lease_ms (null: never).
-- Returns the number of calls, or null if the replica has not ended.
create function settle_replica_1(p_boot uuid, p_lease_ms bigint, p_grace_ms bigint, p_key_until bigint) returns bigint language plpgsql as $$
declare
    v_slot integer;
    v_seen timestamptz;
    v_calls bigint;
begin
    select slot, seen_at into v_slot, v_seen from replica where boot = p_boot and ended_at is null for update skip locked;
    if not found then
        return null;
    end if;
    if (p_lease_ms is null or v_seen > clock_timestamp() - make_interval(secs => p_lease_ms / 1000.0))
            and (v_seen > clock_timestamp() - make_interval(secs => p_grace_ms / 1000.0) or not pg_try_advisory_xact_lock(hashtextextended(p_boot::text, 1413698114))) then
        return null;
    end if;
    update replica set ended_at = clock_timestamp(), running = 0 where boot = p_boot;
    perform 1 from quota where id in (select counter from unit_block where replica = p_boot) order by id for update;
    perform 1 from unit_block where replica = p_boot order by counter for update;
    update quota q set lost_units = q.lost_units + b.units from unit_block b
        where b.replica = p_boot and b.counter = q.id and b.window_start = q.window_start;
    with gone as (delete from unit_block where replica = p_boot returning counter, has_free)
    select count(pg_notify('toolcrib_units', 'freed ' || g.counter)) into v_calls from gone g join quota q on q.id = g.counter
        where g.has_free and q.recalled_at > clock_timestamp() - interval '30 seconds';
    with unknown as (
        update invocation set state = 'unknown', key_until = case when effect = 'write' and key_until is not null then p_key_until end
            where replica = p_boot and state = 'reserved' returning id, caller, tool, key_until
    ), released as (
        delete from key_holder k using unknown u where k.invocation = u.id and u.key_until is null
    ), kept as (
        update key_holder k set held_until = u.key_until from unknown u where k.invocation = u.id and u.key_until is not null
    ), counted as (
        insert into usage_total select caller, tool, v_slot, 0, 0, count(*), 0, 0 from unknown group by caller, tool
            on conflict (caller, tool, slot) do update set failed = usage_total.failed + excluded.failed
    )
    select count(*) into v_calls from unknown;
    return v_calls;
end $$;

-- Adds partitions for some days from this one on. A day whose calls are in `invocation_other` already stays there.
create function add_partitions_1(p_first date, p_days integer) returns void language plpgsql as $$
declare
    v_day date;
    v_name text;
begin
    perform pg_advisory_xact_lock(1413698114, 1);
    for v_day in select p_first + n from generate_series(0, p_days - 1) as n loop
        v_name := 'invocation_' || to_char(v_day, 'YYYYMMDD');
        if to_regclass(v_name) is null and not exists (select 1 from invocation_other where id >= first_id(v_day) and id < first_id(v_day + 1)) then
            begin
                execute format('create table %I (like invocation including defaults including constraints)', v_name);
                execute format('alter table invocation attach partition %I for values from (%L) to (%L)', v_name, first_id(v_day), first_id(v_day + 1));
            exception when check_violation or lock_not_available then
                null;
            end;
        end if;
    end loop;
end $$;

-- The smallest id of a call that starts on this day (UTC).
create function first_id(p_day date) returns uuid language sql immutable as $$
    select (lpad(to_hex((extract(epoch from p_day) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
$$;

-- Drops the oldest partition whose calls all started before this day, unless a guarantee covers one of them. Its charged calls stay
-- counted. Returns whether one was dropped.
create function drop_partition_1(p_before date, p_now bigint) returns boolean language plpgsql as $$
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
            perform 1 from quota where id = any (v_ids) order by id for update;
            update quota set carried = carried + gone.calls from unnest(v_ids, v_calls) as gone (id, calls) where quota.id = gone.id;
            execute format('alter table invocation detach partition %I', v_name);
            execute format('drop table %I', v_name);
            return true;
        end if;
    end loop;
    return false;
end $$;

-- Compares the counters with what they count, and returns by how many units they differ. Null: another replica compares now.
-- Many rows that were compared become part of `carried`, so that the next comparison reads only newer ones. Counters of runs are left out:
-- callers choose the names of runs, and there can be millions.
create function verify_counters_1() returns bigint language plpgsql as $$
declare
    v_from bigint;
    v_to bigint;
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
    select count(*) into v_rows from invocation where charged is not null and seq >= v_from;
    select coalesce(sum(abs(q.used - q.carried - q.lost_units - coalesce(c.calls, 0) - coalesce(b.units, 0))), 0) into v_drift
        from quota q
        left join (select q.id, count(*) as calls from invocation i cross join unnest(i.charged) as one (counter)
            join quota q on q.id = one.counter and i.seq >= q.from_seq where i.charged is not null and i.seq >= v_from group by q.id) as c
            on c.id = q.id
        left join (select counter, window_start, sum(units) as units from unit_block group by counter, window_start) as b
            on b.counter = q.id and b.window_start = q.window_start
        where q.per <> 'run';
    if v_drift = 0 and v_rows >= 10000 then
        -- Calls that are still reserved may be refunded, so they are counted again.
        select least((select min(seq) from invocation where state = 'reserved' and charged is not null), (select last_value + 1 from charge_seq))
            into v_to;
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
