-- What ran when, for the picture of the devices.

CREATE INDEX attempts_ended ON attempts (finished_at);
