-- One sentence of the service on why a call failed or was refused: never an argument, a result or another's text. Null: the
-- call succeeded or has not ended, or its row is older than this column.
alter table invocation add column detail text;
