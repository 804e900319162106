-- What a caller calls its ask, so that asking again is not asking twice. A key is claimed by the row that reserves, and
-- held until `key_until` (Unix milliseconds; for ever while the call runs). A call that was refused, or did not start,
-- gives it up. Two rows can never hold one key.
alter table invocation add column idempotency_key text;
alter table invocation add column fingerprint text;              -- of definition and arguments
alter table invocation add column key_until integer
    check (key_until is null or (idempotency_key is not null and fingerprint is not null and state != 'refused'))
    -- A call is reserved, or it has ended.
    check (iif(state = 'reserved', duration_us is null and result is null and kind is null,
        state != 'running' and (duration_us is not null or state = 'unknown')));
create unique index invocation_key on invocation (idempotency_key, caller, tool) where key_until is not null;
create index invocation_keyed on invocation (idempotency_key, id) where idempotency_key is not null;

-- It ends once, and what has ended stays as it is.
create trigger invocation_ends_once before update of state on invocation
    when old.state != 'reserved' or new.state = 'reserved'
    begin select raise(abort, 'invocation_ends_once'); end;
create trigger invocation_is_kept before delete on invocation
    when old.state = 'reserved'
    begin select raise(abort, 'invocation_is_kept'); end;

-- The limit that a counter was last counted on under: never counted beyond. Null: not counted on since.
alter table quota add column calls integer check (used <= calls);
