PRAGMA application_id = 6165223;
PRAGMA user_version = 3;
BEGIN TRANSACTION;
CREATE TABLE decision (
    id INTEGER PRIMARY KEY,
    target INTEGER NOT NULL REFERENCES target ON DELETE CASCADE,
    window INTEGER REFERENCES window ON DELETE SET NULL,
    time REAL NOT NULL,
    action TEXT NOT NULL,         -- hold, apply, roll back
    reason TEXT NOT NULL,
    exploring INTEGER NOT NULL DEFAULT 0,
    configuration TEXT,           -- what was to be run
    previous TEXT,                -- what ran before
    expected REAL,                -- its learned cost
    observed REAL,                -- its cost in the first usable window afterwards
    outcome TEXT NOT NULL,        -- held, recommended, postponed, applying, applied, failed, interrupted
    seconds REAL,                 -- how long the change took
    error TEXT NOT NULL DEFAULT ''
);
INSERT INTO "decision" VALUES(1,1,1,1790000020.0,'hold','p95 40ms breaks 30ms; nothing better is expected',0,NULL,NULL,NULL,NULL,'held',NULL,'');
INSERT INTO "decision" VALUES(2,1,2,1790000040.0,'apply','p95 40ms breaks 30ms; least learned cost',0,'{"instances": 1.0, "max_batch_size": 4.0, "max_queue_delay": 0.002}','{"instances": 1.0, "max_batch_size": 1.0, "max_queue_delay": 0.0}',0.5,0.6,'applied',0.58,'');
INSERT INTO "decision" VALUES(3,1,3,1790000060.0,'hold','within',0,NULL,NULL,NULL,NULL,'held',NULL,'');
INSERT INTO "decision" VALUES(4,1,4,1790000080.0,'roll back','the change broke the SLO',0,'{"instances": 1.0, "max_batch_size": 2.0, "max_queue_delay": 0.0}','{"instances": 1.0, "max_batch_size": 4.0, "max_queue_delay": 0.002}',NULL,NULL,'failed',NULL,'out of memory');
CREATE TABLE event (
    id INTEGER PRIMARY KEY,
    target INTEGER REFERENCES target ON DELETE CASCADE,
    time REAL NOT NULL,
    sentence TEXT NOT NULL
);
INSERT INTO "event" VALUES(1,1,1790000090.0,'somebody else set max_batch_size=2; going on from there');
CREATE TABLE orders (             -- what operators want, by the name of a target
    name TEXT PRIMARY KEY,
    paused TEXT,                  -- who wants that nothing is changed, and why
    pinned TEXT,                  -- what is to be run until this is taken back
    rollback TEXT                 -- what to go back to, once
);
CREATE TABLE policy (
    id INTEGER PRIMARY KEY,
    target INTEGER NOT NULL REFERENCES target ON DELETE CASCADE,
    time REAL NOT NULL,
    number INTEGER NOT NULL       -- of the last window it has learned from
);
CREATE TABLE policy_file (
    policy INTEGER NOT NULL REFERENCES policy ON DELETE CASCADE,
    name TEXT NOT NULL,
    content BLOB NOT NULL
);
CREATE TABLE target (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    url TEXT NOT NULL,            -- without credentials
    knobs TEXT NOT NULL,          -- as KnobSpace.to_json
    original TEXT NOT NULL,       -- what the server ran when it was first met
    running TEXT NOT NULL,
    last_good TEXT,
    number INTEGER NOT NULL DEFAULT 0,  -- of the last window
    attached INTEGER NOT NULL DEFAULT 0,  -- counts all attachments: the current one of a name has the most
    UNIQUE (name, url)
);
INSERT INTO "target" VALUES(1,'mlp','sim://mlp','[{"name": "max_batch_size", "grid": [1, 2, 4, 8, 16], "default": 1, "apply_cost": "reload", "unit": ""}, {"name": "max_queue_delay", "grid": [0.0, 0.002, 0.01], "default": 0.0, "apply_cost": "reload", "unit": "s"}, {"name": "instances", "grid": [1, 2], "default": 1, "apply_cost": "in_place", "unit": ""}]','{"instances": 1.0, "max_batch_size": 1.0, "max_queue_delay": 0.0}','{"instances": 1.0, "max_batch_size": 4.0, "max_queue_delay": 0.002}',NULL,4,1);
CREATE TABLE window (
    id INTEGER PRIMARY KEY,
    target INTEGER NOT NULL REFERENCES target ON DELETE CASCADE,
    number INTEGER NOT NULL,
    time REAL NOT NULL,           -- when it ended, s since 1970
    seconds REAL NOT NULL,
    configuration TEXT NOT NULL,
    rate REAL, requests INTEGER NOT NULL, failures INTEGER NOT NULL,
    mean REAL, p50 REAL, p95 REAL, p99 REAL, cpu REAL, gpu REAL,
    level INTEGER, cost REAL, kept INTEGER NOT NULL,
    disturbed TEXT NOT NULL       -- why it must not be learned from; empty if it may
);
INSERT INTO "window" VALUES(1,1,1,1790000010.0,5.0,'{"instances": 1.0, "max_batch_size": 1.0, "max_queue_delay": 0.0}',200.0,1000,0,0.02,0.016,0.04,5.59999999999999942268e-02,1.0,NULL,24,1.33333333333333348136e+00,0,'');
INSERT INTO "window" VALUES(2,1,2,1790000030.0,5.0,'{"instances": 1.0, "max_batch_size": 1.0, "max_queue_delay": 0.0}',200.0,1000,0,0.02,0.016,0.04,5.59999999999999942268e-02,1.0,NULL,24,1.33333333333333348136e+00,0,'');
INSERT INTO "window" VALUES(3,1,3,1790000050.0,5.0,'{"instances": 1.0, "max_batch_size": 4.0, "max_queue_delay": 0.002}',200.0,1000,0,0.009,0.0072,0.018,2.51999999999999967081e-02,1.0,NULL,24,0.6,1,'');
INSERT INTO "window" VALUES(4,1,4,1790000070.0,5.0,'{"instances": 1.0, "max_batch_size": 4.0, "max_queue_delay": 0.002}',200.0,1000,0,0.012,9.60000000000000089372e-03,0.024,0.0336,1.0,NULL,24,0.8,1,'');
CREATE INDEX window_time ON window (target, time);
CREATE INDEX decision_time ON decision (target, time);
CREATE INDEX decision_outcome ON decision (target, outcome);
COMMIT;
