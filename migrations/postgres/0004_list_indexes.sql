-- Indexes for lists with several filters: without them, such a list reads many calls of a large ledger that match only one filter.
-- Here, only the parent table gets them, which takes no time. `index_partition_1` adds them to the partitions while calls go on. New
-- partitions have them from the beginning.
create index invocation_pair         on only invocation (caller, tool, id);
create index invocation_tool_fault   on only invocation (tool, state, id) where state not in ('reserved', 'succeeded');
create index invocation_caller_fault on only invocation (caller, state, id) where state not in ('reserved', 'succeeded');
create index invocation_run_fault    on only invocation (run_id, state, id) where run_id is not null and state not in ('reserved', 'succeeded');

-- Adds one index that the parent table has to a partition that lacks it, to the newest one first. Returns whether it has added one.
-- Commits of calls of that day wait meanwhile. So a large partition of today is left until tomorrow, when nothing is written there.
create function index_partition_1() returns boolean language plpgsql as $$
declare
    v_partition name;
    v_index name;
    v_definition text;
    v_name name;
begin
    if not pg_try_advisory_xact_lock(1413698114, 6) then
        return false;
    end if;
    select c.relname, x.relname, pg_get_indexdef(x.oid) into v_partition, v_index, v_definition
        from pg_index i join pg_class x on x.oid = i.indexrelid
        join pg_inherits p on p.inhparent = i.indrelid join pg_class c on c.oid = p.inhrelid
        where i.indrelid = 'invocation'::regclass and not i.indisvalid
        and not exists (select 1 from pg_inherits a join pg_index own on own.indexrelid = a.inhrelid
            where a.inhparent = i.indexrelid and own.indrelid = c.oid)
        and not (c.relname = 'invocation_' || to_char(now() at time zone 'utc', 'YYYYMMDD') and pg_relation_size(c.oid) > 50000000)
        order by c.relname desc, x.relname limit 1;
    if not found then
        return false;
    end if;
    v_name := v_partition || substr(v_index, length('invocation') + 1);
    execute regexp_replace(v_definition, 'INDEX \S+ ON ONLY \S+ ', format('INDEX %I ON %I ', v_name, v_partition));
    execute format('alter index %I attach partition %I', v_index, v_name);
    return true;
end $$;
