-- Tools that an admin registered at run time. Restored at every start; a manifest's tool of the same name wins.
create table registered_tool (
    name          text    primary key,
    definition    text    not null,          -- JSON, as it came
    registered_by text    not null,          -- caller
    registered_at integer not null           -- Unix milliseconds
) strict, without rowid;
