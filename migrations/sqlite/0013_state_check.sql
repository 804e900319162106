-- For each row, SQLite copies the list of a check (... in (...)) into a temporary table. That took a third of the time of a row. A chain of
-- comparisons means the same. The text of the table is edited, because a new table would need a copy of all rows: "Making Other Kinds Of Table
-- Schema Changes", https://sqlite.org/lang_altertable.html.
pragma writable_schema = on;
update sqlite_schema set sql = replace(sql,
    'state in
        (''reserved'', ''running'', ''succeeded'', ''failed'', ''timed_out'', ''cancelled'', ''refused'', ''unknown'')',
    'state = ''succeeded'' or state = ''reserved'' or state = ''refused'' or state = ''failed'' or state = ''timed_out''
        or state = ''cancelled'' or state = ''unknown'' or state = ''running''')
    where type = 'table' and name = 'invocation';
pragma writable_schema = reset;
-- Reads the edited text again, and tells all connections to do so.
create table edited (one integer);
drop table edited;
