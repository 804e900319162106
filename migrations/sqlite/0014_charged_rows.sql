-- A comparison of counters and rows reads the rows that are new since the last one, as the others count as carried. So it needs no index
-- of all charged rows, which changed one more page for almost every call.
drop index invocation_charged;
