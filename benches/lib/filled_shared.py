"""A ledger on PostgreSQL as it looks after long use, made by the database itself: the same callers, tools, runs and outcomes as in
filled.py. The service makes the schema. Each day is a partition, which is filled and then gets its indexes, as after a restore.

Calls repeat a table of some ten thousand calls again and again, with other ids and times. So what a call is follows from its number, and
totals and the origins of cached answers need no search. The newest days come first: a fill that ends early has no gap, as if retention
had dropped the days before."""

import concurrent.futures
import csv
import io
import json
import math
import random
import time

from lib import filled, shared

DAYS = 60
DAY_MS = 24 * 3600 * 1000
CALLS = 50_021  # of the table; a prime, so that the calls of a day are never the same twice
CACHEABLE = 0.4  # share of the calls: every second repetition is answered from the cache
KEYED = 0.05  # share of the calls that are writes with an idempotency key
LIMITED_TOOLS = 10  # tools with a limit per day over all callers
CALLS_OF_A_RUN = 20
LIMIT = 1_000_000_000
WORKERS = 2

# `n` is the number of a call, over all days.
FUNCTIONS = """
create schema filling;
create table filling.call (
    n integer primary key, tool text, caller text, state text, kind text, effect text, is_cacheable boolean, attempts integer, us bigint,
    run integer, arguments text, result text, meta text, hit_meta text, is_keyed boolean, counter bigint[]);
create function filling.started(n bigint) returns bigint language sql immutable as $$
    select {first} + n * {span} / {rows} $$;
-- A UUIDv7, the same for the same call.
create function filling.id(n bigint) returns uuid language sql immutable as $$
    select (lpad(to_hex(filling.started(n)), 12, '0') || overlay(overlay(right(md5(n::text), 20) placing '7' from 1) placing 'a' from 5))::uuid $$;
"""

DAY = """
begin;
drop table if exists toolcrib.{table};
create table toolcrib.{table} (like toolcrib.invocation including defaults including constraints);
insert into toolcrib.{table} (id, tool, caller, run_id, state, kind, effect, cache, attempts, started_at, duration_us, arguments, result, origin,
        meta, idempotency_key, fingerprint, key_until, reserved, charged, seq, replica)
    select filling.id(n), tool, caller, case when run < 0 then '{long_run}' else 'run-' || lpad(to_hex(n / {calls} * {runs} + run), 12, '0') end,
        state, kind, effect, case when is_hit then 'hit' when is_cacheable then 'miss' else 'off' end, case when is_hit then 0 else attempts end,
        filling.started(n), case when is_hit then 20 + us % 100 else us end, arguments, case when not is_hit then result end,
        case when is_hit then filling.id(n - {calls}) end, case when is_hit then hit_meta else meta end,
        case when is_keyed then 'key-' || n end, case when is_keyed then md5(n::text) || md5(arguments) end,
        case when is_keyed and state = 'succeeded' then filling.started(n) + {day_ms} end, is_keyed,
        case when not is_hit then counter end, case when not is_hit and counter is not null then n + 1 end, '{replica}'
    from (select one.n, call.*, is_cacheable and one.n / {calls} % 2 = 1 as is_hit from generate_series({first_n}::bigint, {last_n}) as one (n)
        join filling.call on call.n = (one.n % {calls})::integer) as drawn (n, n_, tool, caller, state, kind, effect, is_cacheable, attempts, us, run,
        arguments, result, meta, hit_meta, is_keyed, counter, is_hit);
insert into toolcrib.attempt select id, 1, kind, 'status 503', duration_us from toolcrib.{table}
    where state in ('failed', 'timed_out') and kind is not null;
alter table toolcrib.{table} add primary key (id);
{indexes};
commit;
analyze toolcrib.{table};
begin;
alter table toolcrib.invocation attach partition toolcrib.{table} for values from (toolcrib.first_id('{day}')) to (toolcrib.first_id('{day}'::date + 1));
commit;
"""

INDEXES = """select string_agg(replace(replace(indexdef, 'ON ONLY toolcrib.invocation', 'ON toolcrib.{table}'), 'INDEX invocation_', 'INDEX {table}_'), ';')
    from pg_indexes where schemaname = 'toolcrib' and tablename = 'invocation' and indexdef not like '%UNIQUE%'"""

# What the service would have counted for the calls from {low} on.
TOTALS = """
create table filling.count as
    select call.*, high - low + 1 as calls, case when is_cacheable then (high + 1) / 2 - low / 2 else 0 end as hits from (select n as call_n,
        greatest({low} - n + {calls} - 1, 0) / {calls} as low, ({rows} - 1 - n) / {calls} as high from filling.call) as laps join filling.call on n = call_n;
insert into toolcrib.usage_total
    select caller, tool, n % {replicas}, sum(calls), coalesce(sum(calls) filter (where state = 'succeeded'), 0),
        coalesce(sum(calls) filter (where state in ('failed', 'timed_out', 'cancelled', 'unknown')), 0),
        coalesce(sum(calls) filter (where state = 'refused'), 0), sum(hits) from filling.count group by 1, 2, 3;
insert into toolcrib.usage_latency
    select caller, tool, ceil(ln(us) / ln({growth})), n % {replicas}, sum(calls) from (
        select caller, tool, n, us, calls - hits as calls from filling.count where state <> 'refused'
        union all select caller, tool, n, 20 + us % 100, hits from filling.count where hits > 0) as one where calls > 0 group by 1, 2, 3, 4;
insert into toolcrib.key_holder select idempotency_key, caller, tool, id, key_until from toolcrib.invocation
    where key_until > {end} and id >= toolcrib.first_id('{yesterday}');
update toolcrib.quota q set used = (select count(*) from toolcrib.invocation i where i.charged = array[q.id] and i.id >= toolcrib.first_id('{today}')),
    from_seq = {today_n} + 1;
select setval('toolcrib.charge_seq', {rows} + 1);
update toolcrib.replica set ended_at = clock_timestamp() where ended_at is null;
drop schema filling cascade;
analyze toolcrib.usage_total, toolcrib.usage_latency, toolcrib.attempt, toolcrib.key_holder, toolcrib.quota;
analyze toolcrib.invocation;
"""


def fill(url, rows, replicas=1, minutes=None, say=lambda line: None):
    """Puts about `rows` calls into a schema that the service has made, or fewer if `minutes` end before. Returns their number.
    `replicas`: the totals are those of so many replicas."""
    chance = random.Random(2718)
    end, span = int(time.time() * 1000) - 60_000, DAYS * DAY_MS
    plan = Plan(end - span, span, rows)
    counters = make_counters(url, plan)
    shared.run(url, FUNCTIONS.format(first=plan.first, span=span, rows=rows))
    calls, runs = table_of_calls(chance, counters)
    shared.run(url, f"copy filling.call from stdin with (format csv);\n{calls}\\.\n")
    replica = shared.run(url, "select boot from toolcrib.replica limit 1")
    until = time.monotonic() + minutes * 60 if minutes else math.inf
    days = list(plan.days())
    done = []

    def fill_day(number):
        if time.monotonic() > until:
            return
        day, first_n, last_n = days[number]
        table = f"invocation_{day.replace('-', '')}"
        indexes = shared.run(url, INDEXES.format(table=table))
        began = time.monotonic()
        shared.run(url, DAY.format(table=table, long_run=filled.LONG_RUN, calls=CALLS, runs=runs, day_ms=DAY_MS, replica=replica, first_n=first_n,
                                   last_n=last_n, indexes=indexes, day=day))
        done.append(number)
        say(f"{day}: {last_n - first_n + 1:,} rows in {time.monotonic() - began:.0f} s; {len(done)} of {len(days)} days")

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(fill_day, range(len(days))))
    low = days[max(done)][1]
    shared.run(url, TOTALS.format(rows=rows, low=low, calls=CALLS, replicas=replicas, growth=filled.GROWTH, end=end, yesterday=days[1][0], today=days[0][0],
                                  today_n=days[0][1]))
    return rows - low


class Plan:
    """Which calls lie in which day (UTC), the newest first."""

    def __init__(self, first, span, rows):
        self.first, self.span, self.rows = first, span, rows

    def number_at(self, ms):
        """The first call that starts at this time or later."""
        return max(0, -(-(ms - self.first) * self.rows // self.span))

    def days(self):
        end = self.first + self.span
        for start in range(end // DAY_MS * DAY_MS, self.first - DAY_MS, -DAY_MS):
            low, high = self.number_at(start), min(self.number_at(start + DAY_MS), self.rows)
            if low < high:
                yield time.strftime("%Y-%m-%d", time.gmtime(start / 1000)), low, high - 1


def make_counters(url, plan):
    """The counters of the limits: {tool: id}."""
    start = (plan.first + plan.span) // DAY_MS * DAY_MS
    names = [f"tool_{number:02}" for number in range(LIMITED_TOOLS)]
    rows = ", ".join(f"('{name}', '', '', 'day', {start}, {LIMIT}, {plan.first + plan.span})" for name in names)
    found = shared.run(url, f"insert into toolcrib.quota (tool, caller, run, per, window_start, calls, counted_at) values {rows} returning tool, id")
    return dict(line.split("|") for line in found.splitlines())


def table_of_calls(chance, counters):
    """The repeated calls as CSV, and the number of runs in them."""
    source, out, runs, calls_of = filled.Calls(chance, CALLS, []), io.StringIO(), 0, {}
    results = [short_result(chance) for _ in range(2000)]
    writer = csv.writer(out, lineterminator="\n")
    pairs = chance.choices(source.pairs, cum_weights=source.weights, k=CALLS)
    states = chance.choices(list(filled.ENDS), list(filled.ENDS.values()), k=CALLS)
    states[0] = "unknown"  # too rare to be drawn for certain
    for n, ((caller, tool), state) in enumerate(zip(pairs, states)):
        is_cacheable = state == "succeeded" and chance.random() < CACHEABLE
        is_keyed = not is_cacheable and state == "succeeded" and chance.random() < KEYED / (1 - CACHEABLE)
        kind, us, drawn = chance.choice(filled.KINDS[state]), chance.choice(source.durations), chance.random()
        attempts, result = (0, filled.problem(kind, "The arguments are invalid.")) if state == "refused" else (1, chance.choice(results))
        if state == "refused":
            us = 20 + us % 100
        elif kind:
            result = filled.problem(kind, "The tool did not answer.")
        run = None
        if drawn < filled.IN_LONG_RUN:
            run = -1
        elif drawn < filled.WITH_RUN:
            last, count = calls_of.get(caller, (0, CALLS_OF_A_RUN))
            if count == CALLS_OF_A_RUN:
                last, count, runs = runs, 0, runs + 1
            run, calls_of[caller] = last, (last, count + 1)
        counter = f"{{{counters[tool]}}}" if tool in counters and state != "refused" else None
        cache = "miss" if is_cacheable else "off"
        writer.writerow([n, tool, caller, state, kind, "write" if is_keyed else "read", is_cacheable, attempts, us, run, chance.choice(source.arguments),
                         result, filled.meta(cache, attempts, us), filled.meta("hit", 0, 20 + us % 100), is_keyed, counter])
    return out.getvalue(), runs


def short_result(chance):
    """Shorter than those of filled.py, so that more of them fit on the disk."""
    text = " ".join(chance.choices(filled.WORDS, k=chance.randint(2, 20)))
    return json.dumps({"content": [{"type": "text", "text": text}], "is_error": False}, separators=(",", ":"))
