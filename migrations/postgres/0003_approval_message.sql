-- Whether the receivers of webhooks know of a waiting call.
alter table approval add column notified boolean not null default false;
-- JSON: the model's message with the call, and the results of its other calls. Only for `waiting: hold`.
alter table approval add column message text;
