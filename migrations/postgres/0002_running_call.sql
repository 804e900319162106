-- Running calls that have no row in `invocation` yet, as their replicas show them to the others about once a second. Nothing
-- depends on them: without a log, they cost no write to the disk, and a crash of the server empties the table.
create unlogged table running_call (
    id              uuid    primary key,
    replica         uuid    not null,
    tool            text    not null,
    caller          text    not null,
    run_id          text,
    tool_use_id     text,
    effect          text    not null,
    cache           text    not null,
    attempts        integer not null,
    started_at      bigint  not null,           -- Unix milliseconds, as in `invocation`
    arguments       text    not null,
    idempotency_key text,
    parent          uuid
);
create index running_call_replica on running_call (replica);
