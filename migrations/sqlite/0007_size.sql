-- How many calls a row stands for: refused calls of one caller, tool and kind share a row beyond a rate.
alter table invocation add column count integer not null default 1 check (count > 0 and (count = 1 or state = 'refused'));
-- 1: the row was committed before its tool ran, so something was promised. 0: it was written when the call had ended. Null:
-- older than this column.
alter table invocation add column reserved integer;
