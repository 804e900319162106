-- The record of administration. Each hash is over the hash before and the row, so a later change shows: docs/operate/audit.md.
-- Rows are only added. Retention deletes none.
create table audit (
    seq     bigint primary key,
    at      bigint not null,        -- Unix milliseconds
    actor   text   not null,        -- caller, or `operator`
    action  text   not null,
    subject text,                   -- tool, source, caller or call
    detail  text   not null,        -- JSON
    hash    text   not null         -- 64 hexadecimal digits
);
create index audit_subject on audit (subject, seq);
