-- "TCRB": this file is Toolcrib's, so that no other program's database is taken for a ledger.
pragma application_id = 1413698114;

-- One row per invocation: one ask, one end. Written when the call is reserved (charged or effectful calls) or when it
-- ends (all others); ended once and never changed after that.
create table invocation (
    seq          integer primary key,
    id           blob    not null unique check (length(id) = 16),  -- UUIDv7: sorts by start
    tool         text    not null,
    caller       text    not null,
    run_id       text,
    tool_use_id  text,
    state        text    not null check (state in
        ('reserved', 'running', 'succeeded', 'failed', 'timed_out', 'cancelled', 'refused', 'unknown')),
    kind         text,                                             -- error vocabulary; null when the tool answered
    effect       text    not null,
    cache        text    not null,
    attempts     integer not null,
    started_at   integer not null,                                 -- Unix milliseconds
    duration_us  integer,                                          -- null until it ends
    arguments    text    not null,                                 -- JSON, as they came
    result       text,                                             -- JSON: what the tool said, or the problem
    origin       blob,                                             -- answered from the stored result of this call
    meta         text                                              -- JSON: the answer's meta
) strict;

create index invocation_tool   on invocation (tool, id);
create index invocation_caller on invocation (caller, id);
create index invocation_run    on invocation (run_id, id) where run_id is not null;
create index invocation_open   on invocation (state) where state = 'reserved';

-- One row per failed try.
create table attempt (
    invocation   blob    not null,
    attempt      integer not null,
    kind         text    not null,
    message      text    not null,
    duration_us  integer not null,
    primary key (invocation, attempt)
) strict, without rowid;

-- Calls counted against usage limits: one row per limit key, holding its current window. A window never goes back.
create table quota (
    tool         text    not null,          -- '' : over all tools of the caller
    caller       text    not null,          -- '' : over all callers of the tool
    run          text    not null,          -- '' : not per run, or the caller's unnamed run
    per          text    not null,
    window_start integer not null,          -- Unix milliseconds; 0 for run and lifetime
    used         integer not null check (used >= 0),
    primary key (tool, caller, run, per)
) strict, without rowid;

-- Results that may be served again.
create table stored_result (
    key          blob    primary key check (length(key) = 32),
    tool         text    not null,
    origin       blob    not null,          -- the invocation that produced it
    result       text    not null,          -- JSON
    stored_at    integer not null,          -- Unix milliseconds
    expires_at   integer not null
) strict, without rowid;

create index stored_result_tool    on stored_result (tool);
create index stored_result_expires on stored_result (expires_at);

-- What an admin switched on or off at run time; wins over the manifest until it is switched again.
create table tool_switch (
    tool         text    primary key,
    enabled      integer not null check (enabled in (0, 1))
) strict, without rowid;
