-- `commit_batch_1` in steps, with types for what the steps hand to each other. Its parameters, its answer and its decisions are as before, so
-- replicas of earlier versions use it, too.

-- A unit of a counter that a starting call needs.
create type charge as (
    counter      integer,      -- position among the counters of the commit
    starts       bigint,       -- start of the window that the call is in
    max          bigint        -- the limit; 0: the call is refused
);
-- A counter of the commit. The decisions change it, and then it is written.
create type counter as (
    id           bigint,
    newest       bigint,       -- newest start of a window that a call is in
    wanted       bigint,       -- free units that the replica wants
    lowest_max   bigint,       -- lowest limit of a call
    window_start bigint,       -- these six: as in `quota`
    used         bigint,
    from_seq     bigint,
    max          bigint,
    counted_at   bigint,
    grants_from  timestamptz,
    is_new       boolean,      -- a window has begun
    units        bigint,       -- units of calls without a row, for the replica's block
    free         bigint,       -- free units for the replica's block
    has_waiting  boolean       -- a call waits for it
);
-- A call that starts, with a row (a reservation) or without one.
create type starting_call as (
    has_row         boolean,
    id              uuid,
    at              bigint,
    idempotency_key text,
    caller          text,
    tool            text,
    key_until       bigint,
    key             text,      -- names the key that it needs; null: none
    charges         charge[],
    is_final        boolean    -- it has waited long enough for free units
);
-- What the limits say to a call.
create type limit_check as (
    refusal      jsonb,        -- a limit is reached: the decision
    recalls      bigint[],     -- counters whose free units it waits for
    must_wait    boolean       -- a call before it waits for one of its counters
);
-- A call that may start, with its row.
create type admitted_call as (id uuid, charged bigint[], seq bigint);
-- The decisions on all calls of a commit.
create type decisions as (
    reservations jsonb[],
    units        jsonb[],
    counters     counter[],
    admitted     admitted_call[],
    recalls      bigint[]
);
-- Units of a block that go to the rows of ended calls.
create type held_units as (counter bigint, window_start bigint, units bigint);
-- A block, as the replica wants it after the commit.
create type kept_block as (counter bigint, window_start bigint, units bigint, has_free boolean, has_fewer boolean);
-- A call in the batch, with the columns of `invocation`.
create type call_row as (
    id uuid, tool text, caller text, run_id text, tool_use_id text, state text, kind text, effect text, cache text, attempts integer,
    started_at bigint, duration_us bigint, arguments text, result text, origin uuid, meta text, idempotency_key text, fingerprint text,
    key_until bigint, parent uuid, count bigint, detail text
);

-- Locks the replica, and returns its slot. Refuses a commit that another one must exclude.
create function lock_replica(p_boot uuid, p_attachment bigint, p_batch bigint) returns integer language plpgsql as $$
declare
    v_slot integer;
    v_last bigint;
    v_attachment bigint;
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
    return v_slot;
end $$;

-- Locks the counters that calls name, new ones first, and others that the commit changes. Returns the ids of the named ones, in their order.
create function lock_counters(p_counters jsonb, p_others bigint[]) returns bigint[] language plpgsql as $$
declare
    v_ids bigint[];
begin
    loop
        select array_agg(q.id order by n) into v_ids from jsonb_array_elements(p_counters) with ordinality as one (c, n)
            join quota q on q.tool = c->>0 and q.caller = c->>1 and q.run = c->>2 and q.per = c->>3;
        if cardinality(v_ids) is distinct from jsonb_array_length(p_counters) then
            insert into quota (tool, caller, run, per)
                select c->>0, c->>1, c->>2, c->>3 from jsonb_array_elements(p_counters) with ordinality as one (c, n)
                where not exists (select 1 from quota where tool = c->>0 and caller = c->>1 and run = c->>2 and per = c->>3)
                order by n on conflict do nothing;
            continue;
        end if;
        if v_ids is not null or p_others is not null then
            perform 1 from quota where id = any (coalesce(v_ids, '{}') || coalesce(p_others, '{}')) order by id for update;
        end if;
        -- A reset may have deleted a counter before it was locked.
        exit when v_ids is null or (select count(*) from quota where id = any (v_ids)) = cardinality(v_ids);
    end loop;
    return v_ids;
end $$;

-- Locks the blocks that the commit changes: those of a window that ends, and p_counters of this replica, or all of them.
create function lock_blocks(p_boot uuid, p_named jsonb, p_ids bigint[], p_counters bigint[], p_all boolean) returns void language plpgsql as $$
begin
    perform 1 from unit_block b where b.counter in
            (select q.id from jsonb_array_elements(p_named) with ordinality as one (c, n) join quota q on q.id = p_ids[n]
                where q.window_start < (c->>4)::bigint)
        or b.replica = p_boot and (p_all or b.counter = any (p_counters))
        order by b.counter, b.replica for update;
end $$;

-- Takes the units of ended calls out of the blocks. Returns those whose block exists.
create function move_held_units(p_boot uuid, p_held held_units[]) returns held_units[] language plpgsql as $$
declare
    v_moved held_units[];
begin
    with moved as (
        update unit_block b set units = b.units - h.units from unnest(p_held) as h
            where b.replica = p_boot and b.counter = h.counter and b.window_start = h.window_start
            returning b.counter, b.window_start, h.units
    )
    select array_agg((counter, window_start, units)::held_units) into v_moved from moved;
    return v_moved;
end $$;

-- Gives units back that do not stay in the blocks of the replica.
create function return_units(p_boot uuid, p_kept kept_block[], p_all boolean) returns void language plpgsql as $$
declare
    v_notified bigint;
begin
    with changed as (
        select b.counter, b.window_start, greatest(b.units - coalesce(k.units, 0), 0) as back, coalesce(k.has_free, false) as has_free,
                b.has_free as had_free
            from unit_block b left join unnest(p_kept) as k on k.counter = b.counter and k.window_start = b.window_start
            where b.replica = p_boot and (p_all or k.counter is not null)
    ), updated as (
        update unit_block b set units = b.units - c.back, has_free = c.has_free from changed c
            where b.replica = p_boot and b.counter = c.counter
    ), returned as (
        update quota q set used = q.used - c.back from changed c where q.id = c.counter and q.window_start = c.window_start and c.back > 0
    ), notified as (
        -- Replicas that have asked for the free units wait for this.
        select pg_notify('toolcrib_units', 'freed ' || c.counter) from changed c join quota q on q.id = c.counter
            where (c.back > 0 or c.had_free and not c.has_free) and q.recalled_at > clock_timestamp() - interval '10 seconds'
    )
    select count(*) into v_notified from notified;
end $$;

-- The blocks of these that the replica does not have any more, as [counter, start of the window].
create function find_gone(p_boot uuid, p_held held_units[], p_kept kept_block[]) returns jsonb language plpgsql as $$
declare
    v_gone jsonb;
begin
    select coalesce(jsonb_agg(jsonb_build_array(counter, window_start)), '[]') into v_gone
        from (select counter, window_start from unnest(p_held) union select counter, window_start from unnest(p_kept)) as named
        where not exists (select 1 from unit_block b
            where b.replica = p_boot and b.counter = named.counter and b.window_start = named.window_start);
    return v_gone;
end $$;

-- Undoes reservations that were not acknowledged. A call that another replica has settled stays as it is: others may have seen its outcome
-- already.
create function undo_reservations(p_slot integer, p_voids uuid[]) returns void language plpgsql as $$
begin
    delete from key_holder where invocation in (select id from invocation where id = any (p_voids) and state = 'reserved');
    with gone as (delete from invocation where id = any (p_voids) and state = 'reserved' returning caller, tool)
    update usage_total t set calls = t.calls - g.calls
        from (select caller, tool, count(*) as calls from gone group by caller, tool) as g
        where t.caller = g.caller and t.tool = g.tool and t.slot = p_slot;
end $$;

-- The counters that calls name, in their order.
create function read_counters(p_named jsonb, p_ids bigint[]) returns counter[] language plpgsql as $$
declare
    v_counters counter[];
begin
    select array_agg((q.id, c->>4, c->>5, c->>6, q.window_start, q.used, null, q.calls, q.counted_at, q.grants_from, false, 0, 0, false)::counter
            order by n) into v_counters
        from jsonb_array_elements(p_named) with ordinality as one (c, n) join quota q on q.id = p_ids[n];
    return v_counters;
end $$;

-- The calls that start, those with a row first, in the order of the batch.
create function starting_calls(p_reservations jsonb, p_units jsonb) returns starting_call[] language plpgsql as $$
declare
    v_calls starting_call[];
begin
    select array_agg((has_row, id, at, idempotency_key, caller, tool, key_until,
            case when key_until is not null and idempotency_key is not null then concat_ws(chr(1), idempotency_key, caller, tool) end,
            array(select ((c->>0)::integer + 1, c->>1, c->>2)::charge from jsonb_array_elements(charges) as c),
            coalesce(final, false))::starting_call order by has_row desc, n) into v_calls
        from (
            select true, r.* from rows from (jsonb_to_recordset(p_reservations) as (id uuid, started_at bigint, idempotency_key text,
                caller text, tool text, key_until bigint, charges jsonb, final boolean)) with ordinality as r
            union all
            select false, id, at, null, null, null, null, charges, final, n
                from rows from (jsonb_to_recordset(p_units) as (id uuid, at bigint, charges jsonb, final boolean))
                with ordinality as u (id, at, charges, final, n)
        ) as call (has_row, id, at, idempotency_key, caller, tool, key_until, charges, final, n);
    return v_calls;
end $$;

-- Whether the limits let a call start.
create function check_limits(p_counters counter[], p_call starting_call) returns limit_check language plpgsql as $$
declare
    v_check limit_check := (null, '{}', false);
    v_charge charge;
    v_counter counter;
    v_position integer := 0;
    v_is_begun boolean;
begin
    foreach v_charge in array p_call.charges loop
        v_counter := p_counters[v_charge.counter];
        v_check.must_wait := v_check.must_wait or v_counter.has_waiting;
        v_is_begun := v_counter.window_start >= v_charge.starts;
        if not v_is_begun and not p_call.is_final then
            -- Before a window begins, the free units of the window before are called back. So no unit of it is handed out afterwards.
            v_check.recalls := v_check.recalls || array(select b.counter from unit_block b
                where b.counter = v_counter.id and b.has_free and b.window_start < v_charge.starts);
        end if;
        if v_check.refusal is null and (v_charge.max = 0 or v_is_begun and v_counter.used >= v_charge.max) then
            if v_charge.max > 0 and not p_call.is_final and exists (select 1 from unit_block b
                    where b.has_free and b.counter = v_counter.id and b.window_start = v_counter.window_start) then
                v_check.recalls := array_append(v_check.recalls, v_counter.id);
            else
                v_check.refusal := jsonb_build_object('full', v_position, 'start', greatest(v_counter.window_start, v_charge.starts),
                    'used', case when v_is_begun then v_counter.used else 0 end);
            end if;
        end if;
        v_position := v_position + 1;
    end loop;
    return v_check;
end $$;

-- Takes a unit of a counter, and begins its window if needed.
create function take_unit(p_counter counter, p_charge charge, p_at bigint, p_has_row boolean) returns counter language plpgsql as $$
begin
    if p_counter.window_start < p_charge.starts then
        delete from unit_block where counter = p_counter.id;
        p_counter.window_start := p_charge.starts;
        p_counter.used := 0;
        p_counter.units := 0;
        p_counter.from_seq := nextval('charge_seq');
        p_counter.is_new := true;
    end if;
    p_counter.used := p_counter.used + 1;
    p_counter.max := p_charge.max;
    p_counter.counted_at := p_at;
    if not p_has_row then
        p_counter.units := p_counter.units + 1;
    end if;
    return p_counter;
end $$;

-- Gives a key to a call. The row of an earlier holder no longer holds it.
create function claim_key(p_call starting_call) returns void language plpgsql as $$
declare
    v_previous uuid;
begin
    select invocation into v_previous from key_holder
        where idempotency_key = p_call.idempotency_key and caller = p_call.caller and tool = p_call.tool;
    if found then
        update invocation set key_until = null where id = v_previous;
    end if;
    insert into key_holder values (p_call.idempotency_key, p_call.caller, p_call.tool, p_call.id, p_call.key_until)
        on conflict (idempotency_key, caller, tool) do update set invocation = excluded.invocation, held_until = excluded.held_until;
end $$;

-- Locks the keys, and decides each call in the order of the batch.
create function decide_calls(p_calls starting_call[], p_counters counter[]) returns decisions language plpgsql as $$
declare
    v_all decisions;
    v_reservations jsonb[] := '{}';
    v_units jsonb[] := '{}';
    v_counters counter[] := p_counters;
    v_admitted admitted_call[] := '{}';
    v_recalls bigint[] := '{}';
    v_waiting_keys text[] := '{}';
    v_call starting_call;
    v_charge charge;
    v_counter counter;
    v_check limit_check;
    v_holder uuid;
    v_charged bigint[];
    v_decision jsonb;
begin
    perform pg_advisory_xact_lock(hash) from
        (select distinct hashtextextended(key, 1413698114) as hash from unnest(p_calls) where key is not null order by 1) as keys;
    foreach v_call in array p_calls loop
        v_holder := null;
        if v_call.key is not null then
            select invocation into v_holder from key_holder where idempotency_key = v_call.idempotency_key and caller = v_call.caller
                and tool = v_call.tool and held_until > v_call.at;
        end if;
        if v_holder is null then
            v_check := check_limits(v_counters, v_call);
            v_recalls := v_recalls || v_check.recalls;
        end if;
        if v_holder is not null then
            v_decision := jsonb_build_object('holder', v_holder);
        elsif v_check.refusal is not null then
            v_decision := v_check.refusal;
        elsif v_check.must_wait or v_check.recalls <> '{}' or v_call.key = any (v_waiting_keys) then
            -- A call does not overtake this one if it needs the same counter or key.
            v_decision := '{"wait": true}';
            v_waiting_keys := array_append(v_waiting_keys, v_call.key);
            foreach v_charge in array v_call.charges loop
                v_counters[v_charge.counter].has_waiting := true;
            end loop;
        else
            v_decision := '[]';
            v_charged := null;
            foreach v_charge in array v_call.charges loop
                v_counter := take_unit(v_counters[v_charge.counter], v_charge, v_call.at, v_call.has_row);
                v_counters[v_charge.counter] := v_counter;
                v_decision := v_decision || jsonb_build_array(jsonb_build_array(v_counter.window_start, v_counter.used));
                v_charged := array_append(v_charged, v_counter.id);
            end loop;
            if v_call.has_row then
                v_admitted := array_append(v_admitted,
                    (v_call.id, v_charged, case when v_charged is not null then nextval('charge_seq') end)::admitted_call);
                if v_call.key is not null then
                    perform claim_key(v_call);
                end if;
            end if;
        end if;
        if v_call.has_row then
            v_reservations := array_append(v_reservations, v_decision);
        else
            v_units := array_append(v_units, v_decision);
        end if;
    end loop;
    v_all := (v_reservations, v_units, v_counters, v_admitted, v_recalls);
    return v_all;
end $$;

-- Sets free units aside for the replica. Near the limit there are few, so that replicas seldom have to ask each other for them.
create function lend_units(p_counters counter[]) returns counter[] language plpgsql as $$
declare
    v_counter counter;
begin
    for v_position in 1 .. coalesce(cardinality(p_counters), 0) loop
        v_counter := p_counters[v_position];
        if v_counter.wanted > 0 and v_counter.window_start = v_counter.newest and not v_counter.has_waiting
                and (v_counter.grants_from > clock_timestamp()) is not true then
            v_counter.free := least(v_counter.wanted, greatest(least(v_counter.lowest_max, v_counter.max) - v_counter.used, 0) / 4);
            v_counter.used := v_counter.used + v_counter.free;
            p_counters[v_position] := v_counter;
        end if;
    end loop;
    return p_counters;
end $$;

-- Writes the counters and the replica's blocks, and asks other replicas for the free units of p_recalls.
create function write_counters(p_boot uuid, p_counters counter[], p_recalls bigint[]) returns void language plpgsql as $$
begin
    insert into unit_block as b
        select p_boot, id, window_start, units + free, free > 0 from unnest(p_counters) where units + free > 0 order by id
        on conflict (replica, counter) do update set units = b.units + excluded.units, has_free = b.has_free or excluded.has_free;
    if p_recalls <> '{}' then
        update quota set recalled_at = clock_timestamp(), grants_from = greatest(grants_from, clock_timestamp() + interval '200 milliseconds')
            where id = any (p_recalls);
        perform pg_notify('toolcrib_units', 'recall ' || id) from (select distinct unnest(p_recalls) as id) as one;
    end if;
    update quota q set window_start = c.window_start, used = c.used, calls = c.max, counted_at = c.counted_at,
            from_seq = coalesce(c.from_seq, q.from_seq), carried = case when c.is_new then 0 else q.carried end,
            lost_units = case when c.is_new then 0 else q.lost_units end,
            grants_from = case when c.is_new and q.grants_from < clock_timestamp() + interval '1 second' then null else q.grants_from end
        from unnest(p_counters) as c
        where q.id = c.id and (q.used, q.window_start) is distinct from (c.used, c.window_start);
end $$;

-- Writes the rows of calls that may start.
create function write_reservations(p_boot uuid, p_slot integer, p_reservations jsonb, p_admitted admitted_call[]) returns void language plpgsql as $$
begin
    with added as (
        insert into invocation (id, tool, caller, run_id, tool_use_id, state, effect, cache, attempts, started_at, arguments, idempotency_key,
                fingerprint, key_until, parent, reserved, charged, seq, replica)
            select r.id, tool, caller, run_id, tool_use_id, 'reserved', effect, cache, attempts, started_at, arguments, idempotency_key,
                fingerprint, key_until, parent, true, a.charged, a.seq, p_boot
            from jsonb_populate_recordset(null::call_row, p_reservations) as r join unnest(p_admitted) as a on a.id = r.id
            returning caller, tool
    )
    insert into usage_total select caller, tool, p_slot, count(*), 0, 0, 0, 0 from added group by caller, tool
        on conflict (caller, tool, slot) do update set calls = usage_total.calls + excluded.calls;
end $$;

-- Writes the rows of calls that have ended, with the units that were moved out of the blocks. Returns those among p_settled that another
-- replica has settled: their callers must not get a result.
create function write_ends(p_boot uuid, p_slot integer, p_ends jsonb, p_moved held_units[], p_seq bigint,
    p_settled uuid[]) returns uuid[] language plpgsql as $$
declare
    v_ended integer;
    v_lost uuid[] := '{}';
begin
    with charged as (
        select e.id as invocation, array_agg(m.counter) as counters
            from jsonb_to_recordset(p_ends) as e (id uuid, held jsonb) cross join jsonb_array_elements(e.held) as h
            join unnest(p_moved) as m on m.counter = (h->>0)::bigint and m.window_start = (h->>1)::bigint group by e.id
    ), ended as (
        insert into invocation as i (id, tool, caller, run_id, tool_use_id, state, kind, effect, cache, attempts, started_at, duration_us,
                arguments, result, origin, meta, idempotency_key, fingerprint, key_until, parent, count, detail, reserved, charged, seq, replica)
            select e.*, false, c.counters, case when c.counters is not null then p_seq end, p_boot
            from jsonb_populate_recordset(null::call_row, p_ends) as e left join charged c on c.invocation = e.id
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
            select caller, tool, p_slot, count(*) filter (where not reserved), count(*) filter (where state = 'succeeded'),
                count(*) filter (where state in ('failed', 'timed_out', 'cancelled', 'unknown')), count(*) filter (where state = 'refused'),
                count(*) filter (where cache in ('hit', 'joined') and state <> 'refused') from ended group by caller, tool
            on conflict (caller, tool, slot) do update set calls = usage_total.calls + excluded.calls,
                succeeded = usage_total.succeeded + excluded.succeeded, failed = usage_total.failed + excluded.failed,
                refused = usage_total.refused + excluded.refused, cache_hits = usage_total.cache_hits + excluded.cache_hits
    )
    select count(*) into v_ended from ended where id = any (p_settled);
    if v_ended < cardinality(p_settled) then
        select coalesce(array_agg(id), '{}') into v_lost from invocation where id = any (p_settled) and state = 'unknown' and duration_us is null;
    end if;
    return v_lost;
end $$;

-- Writes shared refusals, attempts, stored results and durations.
create function write_others(p_slot integer, p_refusals jsonb, p_attempts jsonb, p_results jsonb, p_latencies jsonb) returns void language plpgsql as $$
begin
    if p_refusals is not null then
        update invocation i set count = r.count from jsonb_to_recordset(p_refusals) as r (id uuid, count bigint)
            where i.id = r.id and i.count < r.count;
        insert into usage_total
            select caller, tool, p_slot, sum(added), 0, 0, sum(added), 0
                from jsonb_to_recordset(p_refusals) as r (caller text, tool text, added bigint) group by caller, tool
            on conflict (caller, tool, slot) do update set calls = usage_total.calls + excluded.calls,
                refused = usage_total.refused + excluded.refused;
    end if;
    if p_attempts is not null then
        insert into attempt select * from jsonb_populate_recordset(null::attempt, p_attempts) on conflict do nothing;
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
        insert into usage_latency select caller, tool, bucket, p_slot, calls
                from jsonb_to_recordset(p_latencies) as l (caller text, tool text, bucket bigint, calls bigint)
            on conflict (caller, tool, bucket, slot) do update set calls = usage_latency.calls + excluded.calls;
    end if;
end $$;

-- The units that ended calls have in blocks of the replica.
create function held_by(p_ends jsonb) returns held_units[] language plpgsql as $$
declare
    v_held held_units[];
begin
    select array_agg((id, start, units)::held_units) into v_held from
        (select (h->>0)::bigint as id, (h->>1)::bigint as start, count(*) as units
            from jsonb_to_recordset(p_ends) as e (held jsonb) cross join jsonb_array_elements(e.held) as h group by 1, 2) as held;
    return v_held;
end $$;

-- Locks what a commit changes, except keys: the counters that its calls name, those of p_refunded calls and of blocks that get smaller, and
-- its blocks. Returns the ids of the named counters.
create function lock_units(p_boot uuid, p_counters jsonb, p_refunded uuid[], p_held held_units[], p_kept kept_block[], p_all boolean)
    returns bigint[] language plpgsql as $$
declare
    v_ids bigint[];
    v_others bigint[];
    v_blocks bigint[];
begin
    if p_refunded is not null then
        select array_agg(id) into v_others from counters_of(p_refunded) as id;
    end if;
    if p_all then
        v_others := v_others || array(select counter from unit_block where replica = p_boot);
    elsif p_kept is not null then
        v_others := v_others || array(select counter from unnest(p_kept) where has_fewer);
    end if;
    if p_counters is not null or v_others is not null then
        v_ids := lock_counters(p_counters, v_others);
    end if;
    if p_held is not null or p_kept is not null then
        v_blocks := array(select counter from unnest(p_held) union select counter from unnest(p_kept));
    end if;
    if v_ids is not null or v_blocks is not null or p_all then
        perform lock_blocks(p_boot, p_counters, v_ids, v_ids || v_blocks, p_all);
    end if;
    return v_ids;
end $$;

-- One commit of a replica: `0001_ledger.sql` describes the parameters and the answer. Locks are taken in one order in all replicas: new
-- counters by name, counters by id, blocks by counter and replica, keys by hash.
create or replace function commit_batch_1(
    p_boot uuid, p_attachment bigint, p_batch bigint, p_running integer, p_counters jsonb, p_reservations jsonb, p_units jsonb, p_ends jsonb, p_voids uuid[],
    p_attempts jsonb, p_results jsonb, p_refusals jsonb, p_latencies jsonb, p_blocks jsonb, p_all boolean, p_looks boolean
) returns jsonb language plpgsql as $$
declare
    v_slot integer;
    v_ids bigint[];
    v_held held_units[]; v_moved held_units[]; v_kept kept_block[];
    v_seq bigint;
    v_settled uuid[]; v_refunded uuid[]; v_lost uuid[] := '{}';
    v_counters counter[];
    v_decided decisions;
    v_gone jsonb := '[]'; v_asked jsonb := '[]';
begin
    v_slot := lock_replica(p_boot, p_attachment, p_batch);
    if p_ends is not null then
        v_held := held_by(p_ends);
        -- A refused call that has a reservation did not get the answer to it in time.
        select array_agg(id), array_agg(id) filter (where refunds or state = 'refused') into v_settled, v_refunded
            from jsonb_to_recordset(p_ends) as one (id uuid, state text, settles boolean, refunds boolean) where settles or state = 'refused';
    end if;
    v_refunded := v_refunded || p_voids;
    if p_blocks is not null then
        v_kept := array(select (b->>0, b->>1, b->>2, b->>3, b->>4)::kept_block from jsonb_array_elements(p_blocks) as b);
    end if;
    v_ids := lock_units(p_boot, p_counters, v_refunded, v_held, v_kept, p_all);

    if v_held is not null then
        -- The blocks are locked, so the rows get a number of the window of the blocks, before a decision begins the next window.
        v_seq := nextval('charge_seq');
        v_moved := move_held_units(p_boot, v_held);
    end if;
    if v_kept is not null or p_all then
        perform return_units(p_boot, v_kept, p_all);
    end if;
    if v_held is not null or v_kept is not null then
        v_gone := find_gone(p_boot, v_held, v_kept);
    end if;
    if v_refunded is not null then
        perform refund_units(v_refunded);
    end if;
    if p_voids is not null then
        perform undo_reservations(v_slot, p_voids);
    end if;

    if v_ids is not null then
        v_counters := read_counters(p_counters, v_ids);
    end if;
    if p_reservations is not null or p_units is not null then
        v_decided := decide_calls(starting_calls(p_reservations, p_units), v_counters);
        v_counters := v_decided.counters;
    end if;
    if v_ids is not null then
        v_counters := lend_units(v_counters);
        perform write_counters(p_boot, v_counters, v_decided.recalls);
    end if;

    if v_decided.admitted <> '{}' then
        perform write_reservations(p_boot, v_slot, p_reservations, v_decided.admitted);
    end if;
    if p_ends is not null then
        v_lost := write_ends(p_boot, v_slot, p_ends, v_moved, v_seq, v_settled);
    end if;
    perform write_others(v_slot, p_refusals, p_attempts, p_results, p_latencies);
    if v_held is not null or v_kept is not null or p_all then
        delete from unit_block b where replica = p_boot and units = 0
            and (p_all or counter in (select counter from unnest(v_held) union select counter from unnest(v_kept)));
    end if;
    if p_looks then
        select coalesce(jsonb_agg(b.counter), '[]') into v_asked from unit_block b join quota q on q.id = b.counter
            where b.replica = p_boot and b.has_free and q.recalled_at > clock_timestamp() - interval '10 seconds';
    end if;
    update replica set last_batch = p_batch, running = p_running, seen_at = clock_timestamp() where boot = p_boot;
    return jsonb_build_object('reservations', to_jsonb(coalesce(v_decided.reservations, '{}')), 'units', to_jsonb(coalesce(v_decided.units, '{}')),
        'lost', to_jsonb(v_lost), 'gone', v_gone, 'recalled', v_asked,
        'counters', coalesce((select jsonb_agg(jsonb_build_array(id, window_start, used, free) order by ordinality)
            from unnest(v_counters) with ordinality), '[]'));
end $$;
