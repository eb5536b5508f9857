-- Numbers begin at 2: files of version 1 were made before anything was published, and are refused.

-- One row per job, in every state. Partial indexes keep each question about the jobs
-- it concerns: claiming never sees ended jobs, pruning never sees ready ones.
CREATE TABLE jobs (
    seq            INTEGER PRIMARY KEY,
    id             TEXT    NOT NULL,
    queue          TEXT    NOT NULL,
    task           TEXT    NOT NULL,
    payload        TEXT    NOT NULL,
    state          TEXT    NOT NULL,
    priority       INTEGER NOT NULL,
    lane           TEXT    NOT NULL,
    created        REAL    NOT NULL,
    due            REAL    NOT NULL,
    expires        REAL,
    timeout        REAL,
    trace          TEXT,
    tags           TEXT,
    attempts       INTEGER NOT NULL DEFAULT 0,
    crashes        INTEGER NOT NULL DEFAULT 0,
    generation     INTEGER NOT NULL DEFAULT 0,
    unique_key     TEXT,
    unique_until   REAL,
    unique_holds   INTEGER NOT NULL DEFAULT 0,
    after          TEXT,
    fence          INTEGER NOT NULL DEFAULT 0,
    claim          INTEGER NOT NULL DEFAULT 0,
    worker         TEXT,
    number         INTEGER NOT NULL DEFAULT 0,
    lease          REAL    NOT NULL DEFAULT 0,
    alone          INTEGER NOT NULL DEFAULT 0,
    started        REAL,
    finished       REAL,
    result         TEXT,
    error          TEXT,
    reason         TEXT,
    progress       REAL,
    note           TEXT,
    part           TEXT    NOT NULL DEFAULT '',
    unknown_for    REAL    NOT NULL DEFAULT 0,
    needs          TEXT,
    batching       TEXT,
    call           TEXT    NOT NULL DEFAULT '',
    extra          TEXT,
    flow           TEXT
) STRICT;

CREATE UNIQUE INDEX jobs_id        ON jobs (id);
CREATE INDEX jobs_ready            ON jobs (queue, lane, priority, due)  WHERE state = 'ready';
CREATE INDEX jobs_scheduled        ON jobs (queue, due)                  WHERE state = 'scheduled';
CREATE INDEX jobs_retrying         ON jobs (queue, attempts)             WHERE state = 'scheduled' AND attempts > 0;
CREATE INDEX jobs_running          ON jobs (queue, lane)                 WHERE state = 'running';
CREATE INDEX jobs_waiting          ON jobs (after)                       WHERE state = 'waiting';
-- Jobs of flows (`flow` is core.flow_jobs.InFlow) stand apart: they are kept as long as their flow, and whoever
-- prunes a queue passes them over. One index of both costs every other job less than two.
CREATE INDEX jobs_ended            ON jobs (queue, state, (flow IS NOT NULL), finished) WHERE finished IS NOT NULL;
CREATE INDEX jobs_flow             ON jobs (flow ->> '$.id')             WHERE flow IS NOT NULL;
CREATE INDEX jobs_expiring         ON jobs (expires)
    WHERE expires IS NOT NULL AND state IN ('scheduled', 'ready', 'waiting');
CREATE INDEX jobs_unique           ON jobs (queue, unique_key)
    WHERE unique_key IS NOT NULL AND (unique_holds OR state IN ('scheduled', 'ready', 'waiting', 'running'));

-- The lanes that have something ready, with their heads. `grp` are the pools its jobs share with other
-- lanes, '' for none. `blocked`: 0 open; 1 a hint that the lane was at its limit, which whoever frees a
-- place clears; 2 a pool with a key refused its head, or it is a batch that waits for company. Then `waits`
-- is that pool and key, or U+001F for a batch, and `wake` the boot time when it is asked again at the latest.
-- A batch is also looked at when `lacks` more jobs have come. Its `wake` counts until a call is taken from it.
CREATE TABLE lanes (
    queue     TEXT    NOT NULL,
    lane      TEXT    NOT NULL,
    grp       TEXT    NOT NULL DEFAULT '',
    priority  INTEGER NOT NULL,
    due       REAL    NOT NULL,
    seq       INTEGER NOT NULL,
    served    INTEGER NOT NULL,
    blocked   INTEGER NOT NULL DEFAULT 0,
    wake      REAL    NOT NULL DEFAULT 0,
    waits     TEXT    NOT NULL DEFAULT '',
    lacks     INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, lane)
) STRICT, WITHOUT ROWID;
CREATE INDEX lanes_open  ON lanes (queue, grp, priority, served, seq) WHERE blocked = 0;
CREATE INDEX lanes_shut  ON lanes (queue, wake)                       WHERE blocked = 2;
CREATE INDEX lanes_waits ON lanes (waits)                             WHERE blocked = 2;

-- Groups of lanes that one of their pools refused, each as one row, however many lanes it has: as
-- core.ledger.Shut. Whatever frees units of that pool deletes it.
CREATE TABLE blocks (
    queue     TEXT    NOT NULL,
    grp       TEXT    NOT NULL,
    pool      TEXT    NOT NULL,
    priority  INTEGER NOT NULL,
    until     REAL    NOT NULL,
    again     REAL    NOT NULL,
    PRIMARY KEY (queue, grp)
) STRICT, WITHOUT ROWID;

-- What providers meter: declared by code, overridden by people.
CREATE TABLE pools (
    name      TEXT NOT NULL PRIMARY KEY,
    declared  TEXT NOT NULL,
    override  TEXT
) STRICT, WITHOUT ROWID;

-- All that is known of a pool, or of one key of it (`key` is '' for none), as core.accounts.Account.
-- `looked` is the wall time it was last written, or found to be worth keeping.
CREATE TABLE accounts (
    pool     TEXT NOT NULL,
    key      TEXT NOT NULL,
    looked   REAL NOT NULL,
    account  TEXT NOT NULL,
    PRIMARY KEY (pool, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX accounts_looked ON accounts (looked) WHERE key <> '';

-- Units that a claim holds, as core.reserving.Reservation. They outlive the claim when it is taken from
-- its holder by hand: then `ends` is the boot time from which on nobody will speak for them. `extra` are kept
-- for a call that its handler asked for in an attempt before.
CREATE TABLE reservations (
    job          TEXT    NOT NULL,
    fence        INTEGER NOT NULL,
    claim        INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    pool         TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    reservation  TEXT    NOT NULL,
    probe        INTEGER NOT NULL,
    extra        INTEGER NOT NULL,
    worker       TEXT    NOT NULL,
    ends         REAL,
    PRIMARY KEY (job, fence, claim, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX reservations_account ON reservations (pool, key);
CREATE INDEX reservations_ends    ON reservations (ends) WHERE ends IS NOT NULL;

-- Claims whose units were counted anew because their holder fell silent. If it speaks after all it is heard,
-- once: a settlement whose reply was lost comes again.
CREATE TABLE unheard (
    job    TEXT    NOT NULL,
    fence  INTEGER NOT NULL,
    claim  INTEGER NOT NULL,
    since  REAL    NOT NULL,
    PRIMARY KEY (job, fence, claim)
) STRICT, WITHOUT ROWID;

-- Jobs per queue and state, those of flows that have ended ('done_parts' and its like; `prune` needs the others,
-- and counting a million of them takes too long), and the store-wide numbers (queue ''): 'fence', 'picks', and in 'seq' the
-- highest place in line of a job that is gone.
-- One small table, so that one transaction dirties one page for all of them.
CREATE TABLE counters (
    queue  TEXT    NOT NULL,
    name   TEXT    NOT NULL,
    value  INTEGER NOT NULL,
    PRIMARY KEY (queue, name)
) STRICT, WITHOUT ROWID;

-- `limited`: the length may be limited, now or when an override has ended by itself. A limit that an
-- override names as null is none; one that it does not name is the declared one.
CREATE TABLE queues (
    name      TEXT NOT NULL PRIMARY KEY,
    declared  TEXT NOT NULL,
    override  TEXT,
    pause     TEXT,
    limited   INTEGER AS (
        override ->> '$.until' IS NOT NULL
        OR CASE WHEN json_type(override, '$.changes.max_length') IS NULL
                THEN declared ->> '$.max_length'
                ELSE override ->> '$.changes.max_length' END IS NOT NULL) STORED
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
    id           TEXT    NOT NULL PRIMARY KEY,
    number       INTEGER NOT NULL,
    lease        REAL    NOT NULL,
    seen         REAL    NOT NULL,
    host         TEXT    NOT NULL,
    pid          INTEGER NOT NULL,
    queues       TEXT    NOT NULL,
    concurrency  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE leaders (
    duty    TEXT NOT NULL PRIMARY KEY,
    worker  TEXT NOT NULL,
    lease   REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- Requests written by anyone who can INSERT; a worker turns them into jobs.
CREATE TABLE arrivals (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,  -- a late admission must not meet a newer arrival
    id       TEXT NOT NULL CHECK (instr(id, char(0)) = 0),
    task     TEXT NOT NULL,
    payload  TEXT NOT NULL,
    options  TEXT NOT NULL DEFAULT '{}',
    arrived  REAL NOT NULL DEFAULT (unixepoch('subsec'))
) STRICT;

-- Ids of jobs that are gone, and of requests that made none, with what they were told. They are
-- forgotten when both clocks say so: a stepped wall clock ends nothing early.
CREATE TABLE remembered (
    id       TEXT    NOT NULL PRIMARY KEY,
    verdict  TEXT    NOT NULL,
    job      TEXT    NOT NULL,
    fence    INTEGER NOT NULL,
    claim    INTEGER NOT NULL,
    until    REAL    NOT NULL,
    on_boot  REAL    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX remembered_until ON remembered (until);

CREATE TABLE history (
    queue      TEXT    NOT NULL,
    minute     INTEGER NOT NULL,
    done       INTEGER NOT NULL,
    failed     INTEGER NOT NULL,
    cancelled  INTEGER NOT NULL,
    retried    INTEGER NOT NULL,
    reclaimed  INTEGER NOT NULL,
    dropped_early INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, minute)
) STRICT, WITHOUT ROWID;

-- Minutes of pools, keys added up. `units` and `refusals` are JSON objects: which there are is the pool's.
CREATE TABLE pool_history (
    pool      TEXT    NOT NULL,
    minute    INTEGER NOT NULL,
    calls     INTEGER NOT NULL,
    units     TEXT    NOT NULL,
    refusals  TEXT    NOT NULL,
    PRIMARY KEY (pool, minute)
) STRICT, WITHOUT ROWID;

CREATE TABLE attempts (
    job         INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    generation  INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    started     REAL,
    ended       REAL    NOT NULL,
    worker      TEXT,
    outcome     TEXT    NOT NULL,
    error       TEXT,
    PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE logs (
    job         INTEGER NOT NULL,
    generation  INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    at          REAL    NOT NULL,
    line        TEXT    NOT NULL,
    PRIMARY KEY (job, generation, attempt, number)
) STRICT, WITHOUT ROWID;

-- What paid steps have begun and what steps brought home, as core.checkpoints.Checkpoint. `number` is the
-- order in which they were first begun; `fence`, `claim` and `try` say who marked it last.
CREATE TABLE checkpoints (
    number     INTEGER PRIMARY KEY,
    job        INTEGER NOT NULL,
    name       TEXT    NOT NULL,
    arguments  TEXT    NOT NULL,
    paid       INTEGER NOT NULL,
    begun      REAL    NOT NULL,
    fence      INTEGER NOT NULL,
    claim      INTEGER NOT NULL,
    try        INTEGER NOT NULL,
    kept       REAL,
    result     TEXT,
    unknown    INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX checkpoints_step ON checkpoints (job, name, arguments);

-- Flows and schedules, as core.courses.Course: what makes jobs by itself.
CREATE TABLE courses (
    kind      TEXT    NOT NULL,
    id        TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    state     TEXT    NOT NULL,
    created   REAL    NOT NULL,
    revision  INTEGER NOT NULL,
    record    TEXT    NOT NULL,
    due       REAL,
    finished  REAL,
    until     REAL
) STRICT;
CREATE UNIQUE INDEX courses_id ON courses (kind, id);
CREATE INDEX courses_created   ON courses (kind, created, id);
CREATE INDEX courses_name      ON courses (kind, name, created, id);
CREATE INDEX courses_state     ON courses (kind, state, created, id, name);
CREATE INDEX courses_due       ON courses (kind, due, id)   WHERE due IS NOT NULL;
CREATE INDEX courses_until     ON courses (until, kind, id) WHERE until IS NOT NULL;

-- Courses that are to be looked at, and because of which job that ended, came back or went, '' for none.
CREATE TABLE stirs (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,  -- who took one must not take another that came since
    kind    TEXT    NOT NULL,
    course  TEXT    NOT NULL,
    job     TEXT    NOT NULL
) STRICT;
CREATE INDEX stirs_course ON stirs (kind, course);

CREATE TABLE facts (
    name   TEXT NOT NULL PRIMARY KEY,
    value  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- One plain ready job, the commonest insert, is appended here: one statement, one page. The next step
-- that is about jobs files it in its place, so nobody ever sees a job that is only here.
CREATE TABLE inbox (
    seq       INTEGER PRIMARY KEY,
    id        TEXT    NOT NULL,
    queue     TEXT    NOT NULL,
    task      TEXT    NOT NULL,
    payload   TEXT    NOT NULL,
    priority  INTEGER NOT NULL,
    lane      TEXT    NOT NULL,
    created   REAL    NOT NULL,
    expires   REAL,
    timeout   REAL,
    trace     TEXT,
    tags      TEXT
) STRICT;
