-- Calls that need the approval of a person. The row in `invocation` is written when such a call starts, or when it can no longer
-- start.
create table approval (
    id              blob    primary key check (length(id) = 16),   -- the call
    tool            text    not null,
    caller          text    not null,
    state           text    not null check (state in ('waiting', 'approved', 'started', 'denied', 'expired', 'withdrawn')),
    idempotency_key text,
    approvers       text    not null,      -- callers that may decide, each between line feeds
    request         text    not null,      -- JSON: what a person sees
    call            text,                  -- JSON: what is needed to run the call; null: only the memory of `runner` has that
    requested_at    integer not null,      -- Unix milliseconds, as all times
    expires_at      integer not null,
    decided_at      integer,
    decided_by      text,
    note            text,
    changed         text,                  -- JSON: the arguments that were approved instead
    runner          text    not null,      -- the process that acts on the state
    done            integer not null default 0 check (done in (0, 1))
) strict;
-- A key belongs to one call that waits or starts. `done`: the key of the call's own row takes over.
create unique index approval_key on approval (idempotency_key, caller, tool) where idempotency_key is not null and done = 0;
create index approval_open on approval (id) where done = 0;
create index approval_tool on approval (tool, id);
