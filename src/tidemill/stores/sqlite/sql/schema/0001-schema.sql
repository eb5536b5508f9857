
-- One row per job, in every state. Partial indexes keep each query on the jobs it concerns: a claim never
-- reads ended jobs, pruning never reads ready ones.
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
    deferred_needs TEXT,
    flow           TEXT
) STRICT;

CREATE UNIQUE INDEX jobs_id        ON jobs (id);
CREATE INDEX jobs_ready            ON jobs (queue, lane, priority, due)  WHERE state = 'ready';
CREATE INDEX jobs_scheduled        ON jobs (queue, due)                  WHERE state = 'scheduled';
CREATE INDEX jobs_retrying         ON jobs (queue, attempts)             WHERE state = 'scheduled' AND attempts > 0;
CREATE INDEX jobs_running          ON jobs (queue, lane)                 WHERE state = 'running';
CREATE INDEX jobs_waiting          ON jobs (after)                       WHERE state = 'waiting';
-- Separates jobs of flows (`flow` is core.jobs.FlowPosition): they are kept as long as their flow, and
-- pruning a queue skips them. One index for both costs every other job less than two.
CREATE INDEX jobs_ended            ON jobs (queue, state, (flow IS NOT NULL), finished) WHERE finished IS NOT NULL;
CREATE INDEX jobs_flow             ON jobs (flow ->> '$.id')             WHERE flow IS NOT NULL;
CREATE INDEX jobs_expiring         ON jobs (expires)
    WHERE expires IS NOT NULL AND state IN ('scheduled', 'ready', 'waiting');
CREATE INDEX jobs_unique           ON jobs (queue, unique_key)
    WHERE unique_key IS NOT NULL AND (unique_holds OR state IN ('scheduled', 'ready', 'waiting', 'running'));

-- Lanes with ready jobs, and their heads. `pool_set` is the pools that its jobs share with other lanes, ''
-- for none. `blocked`: 0 open; 1 the lane was at its limit, a hint that a freed slot clears; 2 a keyed pool
-- refused its head, or its batch waits for more jobs. Then `waits_for` is that pool and key, or U+001F for a
-- batch, and `wake_at` the boot time when it is tried again at the latest. A batch is also tried when
-- `missing_jobs` more jobs have arrived. Its `wake_at` holds until a call is taken from it.
CREATE TABLE lanes (
    queue     TEXT    NOT NULL,
    lane      TEXT    NOT NULL,
    pool_set       TEXT    NOT NULL DEFAULT '',
    priority  INTEGER NOT NULL,
    due       REAL    NOT NULL,
    seq       INTEGER NOT NULL,
    served    INTEGER NOT NULL,
    blocked   INTEGER NOT NULL DEFAULT 0,
    wake_at      REAL    NOT NULL DEFAULT 0,
    waits_for     TEXT    NOT NULL DEFAULT '',
    missing_jobs     INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, lane)
) STRICT, WITHOUT ROWID;
CREATE INDEX lanes_open  ON lanes (queue, pool_set, priority, served, seq) WHERE blocked = 0;
CREATE INDEX lanes_blocked  ON lanes (queue, wake_at)                       WHERE blocked = 2;
CREATE INDEX lanes_waits_for ON lanes (waits_for)                             WHERE blocked = 2;

-- Blocked groups of lanes, one row each, however many lanes they have: as core.ledger.LaneBlock. Freed units
-- of that pool delete the row.
CREATE TABLE blocks (
    queue     TEXT    NOT NULL,
    pool_set       TEXT    NOT NULL,
    pool      TEXT    NOT NULL,
    priority  INTEGER NOT NULL,
    until     REAL    NOT NULL,
    retry_at     REAL    NOT NULL,
    PRIMARY KEY (queue, pool_set)
) STRICT, WITHOUT ROWID;

-- Pools: declared by code, overridden by operators.
CREATE TABLE pools (
    name      TEXT NOT NULL PRIMARY KEY,
    declared  TEXT NOT NULL,
    override  TEXT
) STRICT, WITHOUT ROWID;

-- Accounts of pools and of their keys (`key` is '' for none), as core.accounts.Account. `last_seen` is the
-- wall time when it was last written or found to be in use.
CREATE TABLE accounts (
    pool     TEXT NOT NULL,
    key      TEXT NOT NULL,
    last_seen   REAL NOT NULL,
    account  TEXT NOT NULL,
    PRIMARY KEY (pool, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX accounts_last_seen ON accounts (last_seen) WHERE key <> '';

-- Units that a claim holds, as core.reservations.Reservation. They outlive the claim if an operator cancels
-- the running job: then `abandoned_until` is the boot time until which the worker may settle them. `deferred`
-- ones are kept for a call that the handler asked for in an earlier attempt.
CREATE TABLE reservations (
    job          TEXT    NOT NULL,
    fence        INTEGER NOT NULL,
    claim        INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    pool         TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    reservation  TEXT    NOT NULL,
    probe        INTEGER NOT NULL,
    deferred     INTEGER NOT NULL,
    worker       TEXT    NOT NULL,
    abandoned_until         REAL,
    PRIMARY KEY (job, fence, claim, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX reservations_account ON reservations (pool, key);
CREATE INDEX reservations_abandoned    ON reservations (abandoned_until) WHERE abandoned_until IS NOT NULL;

-- Claims whose units were recounted because their worker stopped reporting. A late report is accepted once: a
-- settlement whose reply was lost is sent again.
CREATE TABLE unconfirmed_units (
    job    TEXT    NOT NULL,
    fence  INTEGER NOT NULL,
    claim  INTEGER NOT NULL,
    since  REAL    NOT NULL,
    PRIMARY KEY (job, fence, claim)
) STRICT, WITHOUT ROWID;

-- Jobs per queue and state, ended jobs of flows ('done_flow_jobs' and so on; `prune` needs the others, and
-- counting a million takes too long), and store-wide numbers (queue ''): 'fence', 'picks', and in 'seq' the
-- highest seq of a deleted job. One small table, so that a transaction changes one page for all of them.
CREATE TABLE counters (
    queue  TEXT    NOT NULL,
    name   TEXT    NOT NULL,
    value  INTEGER NOT NULL,
    PRIMARY KEY (queue, name)
) STRICT, WITHOUT ROWID;

-- `limited`: the length may be limited, now or when an override ends. A limit that an override sets to null
-- is none; one that it does not name is the declared one.
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
    service    TEXT NOT NULL PRIMARY KEY,
    worker  TEXT NOT NULL,
    lease   REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- Requests written by other programs; a worker turns them into jobs.
CREATE TABLE arrivals (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,  -- a late admission must not find a newer arrival
    id       TEXT NOT NULL CHECK (instr(id, char(0)) = 0),
    task     TEXT NOT NULL,
    payload  TEXT NOT NULL,
    options  TEXT NOT NULL DEFAULT '{}',
    arrived  REAL NOT NULL DEFAULT (unixepoch('subsec'))
) STRICT;

-- Ids of deleted jobs, and of requests that created none, with their first answer. They are deleted when both
-- clocks have passed: a stepped wall clock ends nothing early.
CREATE TABLE known_ids (
    id       TEXT    NOT NULL PRIMARY KEY,
    verdict  TEXT    NOT NULL,
    job      TEXT    NOT NULL,
    fence    INTEGER NOT NULL,
    claim    INTEGER NOT NULL,
    until    REAL    NOT NULL,
    until_boot  REAL    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX known_ids_until ON known_ids (until);

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

-- History of pools by minute, all keys together. `units` and `refusals` are JSON objects.
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

-- Checkpoints, as core.checkpoints.Checkpoint. `number` is the order in which steps were first started;
-- `fence`, `claim` and `try` identify the attempt that wrote it last.
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

-- Documents: flows, schedules and records, as core.documents.Document.
CREATE TABLE documents (
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
CREATE UNIQUE INDEX documents_id ON documents (kind, id);
CREATE INDEX documents_created   ON documents (kind, created, id);
CREATE INDEX documents_name      ON documents (kind, name, created, id);
CREATE INDEX documents_state     ON documents (kind, state, created, id, name);
CREATE INDEX documents_due       ON documents (kind, due, id)   WHERE due IS NOT NULL;
CREATE INDEX documents_until     ON documents (until, kind, id) WHERE until IS NOT NULL;

-- Documents to advance, and the job that ended, returned or was deleted; '' for another reason.
CREATE TABLE worklist (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,  -- an advance must not delete a row that came later
    kind    TEXT    NOT NULL,
    document  TEXT    NOT NULL,
    job     TEXT    NOT NULL
) STRICT;
CREATE INDEX worklist_document ON worklist (kind, document);

CREATE TABLE meta (
    name   TEXT NOT NULL PRIMARY KEY,
    value  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- A single plain ready job, the most common insert, is appended here: one statement, one page. The next
-- transaction about jobs moves it to `jobs`, so no reader sees a job that is only here.
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
