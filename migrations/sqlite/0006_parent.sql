-- The call whose tool made this one. Null: somebody asked for it.
alter table invocation add column parent blob check (parent is null or length(parent) = 16);
create index invocation_parent on invocation (parent, id) where parent is not null;
