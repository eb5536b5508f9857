-- Jobs, queues, lanes, pools, workers and all that belongs to them.

-- Numbers of jobs, fences, picks, and resets of claim cursors. Sequences never wait for a commit.
CREATE SEQUENCE tidemill.job_seqs MINVALUE 0;
CREATE SEQUENCE tidemill.fences MINVALUE 0;
CREATE SEQUENCE tidemill.picks MINVALUE 0;
CREATE SEQUENCE tidemill.cursor_resets MINVALUE 0;
SELECT setval('tidemill.job_seqs', 0), setval('tidemill.fences', 0), setval('tidemill.picks', 0),
    setval('tidemill.cursor_resets', 0);

-- One row per job, in every state. Partial indexes keep each query on the jobs it concerns: pruning never
-- reads jobs that have not run. No index contains a column that a heartbeat changes. The indexes of all jobs
-- leave room for a second entry per job: its settlement writes a new row, and pages would have to be split.
-- `bulk_claimed`: the job was in a bulk claim when it was last settled. `flow` is the id of its flow.
-- `error`, `tags`, `needs`, `batching`, `deferred_needs` and `in_flow` are JSON.
CREATE TABLE tidemill.jobs (
    seq           bigint           NOT NULL,
    id            text COLLATE "C" NOT NULL,
    queue         text COLLATE "C" NOT NULL,
    task          text             NOT NULL,
    payload       text             NOT NULL,
    state         text COLLATE "C" NOT NULL,
    priority      integer          NOT NULL,
    lane          text COLLATE "C" NOT NULL DEFAULT '',
    created       double precision NOT NULL,
    due           double precision NOT NULL,
    expires       double precision,
    timeout       double precision,
    trace         text,
    tags          text,
    attempts      integer          NOT NULL DEFAULT 0,
    crashes       integer          NOT NULL DEFAULT 0,
    generation    integer          NOT NULL DEFAULT 0,
    unique_key    text COLLATE "C",
    unique_until  double precision,
    unique_holds  boolean          NOT NULL DEFAULT false,
    after         text COLLATE "C",
    fence         bigint           NOT NULL DEFAULT 0,
    claim         bigint           NOT NULL DEFAULT 0,
    worker        text COLLATE "C",
    number        bigint           NOT NULL DEFAULT 0,
    lease         double precision NOT NULL DEFAULT 0,
    alone         boolean          NOT NULL DEFAULT false,
    started       double precision,
    finished      double precision,
    result        text,
    error         text,
    reason        text,
    progress      double precision,
    note          text,
    part          text             NOT NULL DEFAULT '',
    unknown_for   double precision NOT NULL DEFAULT 0,
    needs         text,
    batching      text,
    call          text COLLATE "C" NOT NULL DEFAULT '',
    deferred_needs text,
    bulk_claimed        boolean          NOT NULL DEFAULT false,
    flow          text COLLATE "C",
    in_flow       text,
    PRIMARY KEY (id) WITH (fillfactor = 50)
) WITH (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.05
);
CREATE INDEX jobs_seq ON tidemill.jobs (seq) WITH (fillfactor = 50);
CREATE INDEX jobs_scheduled ON tidemill.jobs (queue, due, seq) WHERE state = 'scheduled';
CREATE INDEX jobs_running ON tidemill.jobs (worker, queue) WHERE state = 'running';
CREATE INDEX jobs_waiting ON tidemill.jobs (after) WHERE state = 'waiting';
-- Separates jobs of flows, which their queue's retention does not delete.
CREATE INDEX jobs_ended ON tidemill.jobs (queue, state, (flow IS NULL), finished, seq) WHERE finished IS NOT NULL;
CREATE INDEX jobs_flow ON tidemill.jobs (flow, seq) WHERE flow IS NOT NULL;
CREATE INDEX jobs_expiring ON tidemill.jobs (queue, expires)
    WHERE expires IS NOT NULL AND state IN ('scheduled', 'ready', 'waiting');
CREATE INDEX jobs_unique ON tidemill.jobs (queue, unique_key)
    WHERE unique_key IS NOT NULL
    AND (unique_holds OR state IN ('scheduled', 'ready', 'waiting', 'running'));

-- Ready jobs that are not claimed, in their order, with the columns that a claim needs. A transaction that
-- changes a ready job locks its row here. `fence` is that of its last claim.
CREATE TABLE tidemill.ready (
    queue     text COLLATE "C" NOT NULL,
    lane      text COLLATE "C" NOT NULL,
    priority  integer          NOT NULL,
    due       double precision NOT NULL,
    seq       bigint           NOT NULL,
    id        text COLLATE "C" NOT NULL,
    fence     bigint           NOT NULL,
    expires   double precision,
    PRIMARY KEY (queue, lane, priority, due, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Bulk claims: one row for all plain jobs claimed together, instead of a change to each job's row.
-- `open_jobs` counts the jobs still in it; 0001-3-bulk-claims.sql says how they leave it.
CREATE TABLE tidemill.claims (
    fence    bigint           PRIMARY KEY,
    claim    bigint           NOT NULL,
    worker   text COLLATE "C" NOT NULL,
    number   bigint           NOT NULL,
    lease    double precision NOT NULL,
    started  double precision NOT NULL,
    open_jobs integer          NOT NULL,
    jobs     text[]           NOT NULL
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 2000
);
ALTER TABLE tidemill.claims ALTER jobs SET STORAGE EXTERNAL;  -- compressing takes longer than writing

-- Settings of queues, and what follows from them. `fast_insert` and `fast_claim`: plain jobs are inserted and
-- claimed without checking limits. `wakes_on_end`: the end of a job may let another one start.
CREATE TABLE tidemill.queues (
    name      text COLLATE "C" PRIMARY KEY,
    declared  text    NOT NULL,
    override  text,
    pause     text,
    fast_insert   boolean NOT NULL,
    fast_claim     boolean NOT NULL,
    wakes_on_end     boolean NOT NULL
);

-- The position up to which the plain jobs of a queue were claimed: no ready job of this priority is at it or
-- before it. `since` is the boot time of the last scan from the beginning, `shift` the clock's shift at that
-- time, `cursor_resets` the number of resets by then. See 0001-4-fast-path.sql.
CREATE TYPE tidemill.claim_cursor AS (
    priority integer, due double precision, seq bigint,
    since double precision, shift double precision, cursor_resets bigint
);

-- Lanes with ready jobs, and the priority and seq of their heads. The lane '' always exists and has no head:
-- plain jobs come and go without touching it. `vacant` is a hint that it became empty: its next job then
-- counts as the start of the lane. `pool_set` is the pools that its jobs share with other lanes, '' for none.
-- A lane with `retry_at` is blocked, as core.ledger.LaneBlock; its `key` is '' for none. Only the lane '' has
-- a claim cursor.
CREATE TABLE tidemill.lanes (
    queue     text COLLATE "C" NOT NULL,
    lane      text COLLATE "C" NOT NULL,
    pool_set       text COLLATE "C" NOT NULL,
    priority  integer,
    seq       bigint,
    served    bigint           NOT NULL,
    vacant    boolean          NOT NULL DEFAULT false,
    pool      text COLLATE "C",
    key       text COLLATE "C",
    until     double precision,
    retry_at     double precision,
    blocked_priority   integer,
    missing_jobs     integer          NOT NULL DEFAULT 0,
    batch_due_at      double precision,
    claim_cursor     tidemill.claim_cursor,
    PRIMARY KEY (queue, lane)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX lanes_open ON tidemill.lanes (queue, pool_set, priority, served, seq)
    WHERE retry_at IS NULL AND lane <> '';
CREATE INDEX lanes_blocked ON tidemill.lanes (queue, retry_at, lane) WHERE retry_at IS NOT NULL;
CREATE INDEX lanes_pool ON tidemill.lanes (pool, key, queue) WHERE retry_at IS NOT NULL;

-- Groups of lanes: the number of their lanes (without the lane ''), and their block if a pool refused them.
-- `key` is '' for none.
CREATE TABLE tidemill.blocks (
    queue    text COLLATE "C"  NOT NULL,
    pool_set      text COLLATE "C"  NOT NULL,
    lanes    bigint            NOT NULL DEFAULT 0,
    pool     text COLLATE "C",
    key      text COLLATE "C",
    until    double precision,
    retry_at    double precision,
    blocked_priority  integer,
    PRIMARY KEY (queue, pool_set)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX blocks_pool ON tidemill.blocks (pool, key) WHERE retry_at IS NOT NULL;

-- Pools: declared by code, overridden by operators.
CREATE TABLE tidemill.pools (
    name      text COLLATE "C" PRIMARY KEY,
    declared  text NOT NULL,
    override  text
);

-- Accounts of pools and of their keys ('' for none), as core.accounts.Account. `last_seen` is the wall time
-- when it was last written or found to be in use.
CREATE TABLE tidemill.accounts (
    pool     text COLLATE "C"  NOT NULL,
    key      text COLLATE "C"  NOT NULL,
    last_seen   double precision  NOT NULL,
    account  text              NOT NULL,
    PRIMARY KEY (pool, key)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX accounts_last_seen ON tidemill.accounts (last_seen) WHERE key <> '';

-- Units that a claim holds, as core.ledger.HeldReservation.
CREATE TABLE tidemill.reservations (
    job       text COLLATE "C" NOT NULL,
    fence     bigint           NOT NULL,
    claim     bigint           NOT NULL,
    number    integer          NOT NULL,
    pool      text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    reserved  text             NOT NULL,
    PRIMARY KEY (job, fence, claim, number)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX reservations_account ON tidemill.reservations (pool, key);

-- Units of running jobs that an operator cancelled: the worker may settle them until its lease ends.
CREATE TABLE tidemill.abandoned_units (
    job     text COLLATE "C"  NOT NULL,
    fence   bigint            NOT NULL,
    claim   bigint            NOT NULL,
    worker  text COLLATE "C"  NOT NULL,
    lease   double precision  NOT NULL,
    PRIMARY KEY (job, fence, claim)
);

-- Claims whose units were recounted because their worker stopped reporting. A late report is accepted once.
CREATE TABLE tidemill.unconfirmed_units (
    job    text COLLATE "C"  NOT NULL,
    fence  bigint            NOT NULL,
    claim  bigint            NOT NULL,
    since  double precision  NOT NULL,
    PRIMARY KEY (job, fence, claim)
);

CREATE TABLE tidemill.workers (
    id           text COLLATE "C" PRIMARY KEY,
    number       bigint           NOT NULL,
    lease        double precision NOT NULL,
    seen         double precision NOT NULL,
    clock_epoch       bigint,  -- epoch in which the worker found the boot time as expected
    host         text             NOT NULL DEFAULT '',
    pid          bigint           NOT NULL DEFAULT 0,
    queues       text             NOT NULL DEFAULT '[]',
    concurrency  integer          NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE tidemill.leaders (
    service    text COLLATE "C" PRIMARY KEY,
    worker  text COLLATE "C" NOT NULL,
    lease   double precision NOT NULL
) WITH (fillfactor = 50);

-- Ids of deleted jobs, and of requests that created none, with their first answer. They are deleted when both
-- clocks have passed: a stepped wall clock ends nothing early. After a reboot only the wall clock counts.
CREATE TABLE tidemill.known_ids (
    id       text COLLATE "C" PRIMARY KEY,
    verdict  text             NOT NULL,
    job      text             NOT NULL,
    fence    bigint           NOT NULL,
    claim    bigint           NOT NULL,
    wall     double precision NOT NULL,
    boot     double precision NOT NULL,
    boot_id  text             NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
CREATE INDEX known_ids_wall ON tidemill.known_ids (wall);

-- History of queues by minute. Every transaction appends rows, so that none waits for a counter; readers add
-- them up, and pruning compacts the rows of a minute.
CREATE TABLE tidemill.history (
    queue      text COLLATE "C"  NOT NULL,
    minute     double precision  NOT NULL,
    done       bigint            NOT NULL DEFAULT 0,
    failed     bigint            NOT NULL DEFAULT 0,
    cancelled  bigint            NOT NULL DEFAULT 0,
    retried    bigint            NOT NULL DEFAULT 0,
    reclaimed  bigint            NOT NULL DEFAULT 0,
    dropped_early bigint         NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000);
CREATE INDEX history_minute ON tidemill.history (queue, minute);

-- Numbers of jobs. A trigger appends the changes of each statement, so that none waits for a counter; readers
-- add them up. Now and then the rows are compacted to one per queue and state. `retrying` are scheduled jobs
-- that have run before, `scheduled` the others. A job in a bulk claim counts as ready, as its row says.
-- `flow_jobs` are ended jobs of flows, which no queue's retention deletes.
CREATE TABLE tidemill.counts (
    queue  text COLLATE "C"  NOT NULL,
    state  text COLLATE "C"  NOT NULL,
    jobs   bigint            NOT NULL,
    flow_jobs  bigint            NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE FUNCTION tidemill.count_jobs() RETURNS trigger LANGUAGE plpgsql SET jit = off AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO tidemill.counts (queue, state, jobs, flow_jobs)
        SELECT j.queue, CASE WHEN j.state = 'scheduled' AND j.attempts > 0 THEN 'retrying' ELSE j.state END, count(*),
            count(*) FILTER (WHERE j.flow IS NOT NULL AND j.finished IS NOT NULL)
        FROM new_rows AS j GROUP BY 1, 2;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO tidemill.counts (queue, state, jobs, flow_jobs)
        SELECT j.queue, CASE WHEN j.state = 'scheduled' AND j.attempts > 0 THEN 'retrying' ELSE j.state END, -count(*),
            -count(*) FILTER (WHERE j.flow IS NOT NULL AND j.finished IS NOT NULL)
        FROM old_rows AS j GROUP BY 1, 2;
    ELSE
        INSERT INTO tidemill.counts (queue, state, jobs, flow_jobs)
        SELECT j.queue, CASE WHEN j.state = 'scheduled' AND j.attempts > 0 THEN 'retrying' ELSE j.state END, sum(j.jobs),
            COALESCE(sum(j.jobs) FILTER (WHERE j.flow IS NOT NULL AND j.finished IS NOT NULL), 0)
        FROM (
            SELECT queue, state, attempts, flow, finished, 1 AS jobs FROM new_rows
            UNION ALL SELECT queue, state, attempts, flow, finished, -1 FROM old_rows
        ) AS j
        GROUP BY 1, 2 HAVING sum(j.jobs) <> 0;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER count_inserted AFTER INSERT ON tidemill.jobs
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION tidemill.count_jobs();
CREATE TRIGGER count_updated AFTER UPDATE ON tidemill.jobs
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION tidemill.count_jobs();
CREATE TRIGGER count_deleted AFTER DELETE ON tidemill.jobs
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION tidemill.count_jobs();

-- History of pools by minute, all keys together. `units` and `refusals` are JSON objects.
CREATE TABLE tidemill.pool_history (
    pool      text COLLATE "C"  NOT NULL,
    minute    double precision  NOT NULL,
    calls     bigint            NOT NULL,
    units     text              NOT NULL,
    refusals  text              NOT NULL,
    PRIMARY KEY (pool, minute)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Details of jobs. Deleting a job deletes them explicitly: foreign keys would run three queries per job.
CREATE TABLE tidemill.attempts (
    job         text COLLATE "C"  NOT NULL,
    number      bigint            GENERATED ALWAYS AS IDENTITY,
    generation  integer           NOT NULL,
    attempt     integer           NOT NULL,
    started     double precision,
    ended       double precision  NOT NULL,
    worker      text,
    outcome     text              NOT NULL,
    error       text,
    PRIMARY KEY (job, number)
);

CREATE TABLE tidemill.logs (
    job         text COLLATE "C"  NOT NULL,
    generation  integer           NOT NULL,
    attempt     integer           NOT NULL,
    number      bigint            GENERATED ALWAYS AS IDENTITY,
    at          double precision  NOT NULL,
    line        text              NOT NULL,
    PRIMARY KEY (job, generation, attempt, number)
);

-- Checkpoints, as core.checkpoints.Checkpoint. `number` is the order in which steps were first started;
-- `fence`, `claim` and `try` identify the attempt that wrote it last.
CREATE TABLE tidemill.checkpoints (
    job        text COLLATE "C"  NOT NULL,
    name       text              NOT NULL,
    arguments  text              NOT NULL,
    number     bigint            GENERATED ALWAYS AS IDENTITY,
    paid       boolean           NOT NULL,
    begun      double precision  NOT NULL,
    fence      bigint            NOT NULL,
    claim      bigint            NOT NULL,
    try        bigint            NOT NULL,
    kept       double precision,
    result     text,
    unknown    integer           NOT NULL,
    PRIMARY KEY (job, name, arguments)
);

-- The boot id that transactions used last. Only the clock of a test ever changes it.
CREATE TABLE tidemill.last_boot (boot_id text NOT NULL);

-- Begins an engine transaction: one at a time. The rows it reads stay unchanged, except plain jobs, which the
-- fast path may move meanwhile and which are therefore locked. Returns the clocks and the last numbers used.
CREATE FUNCTION tidemill.begin_engine_transaction(
    INOUT wall double precision, INOUT boot double precision, INOUT epoch bigint,
    OUT picks bigint, OUT seq bigint, OUT fence bigint
) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock('tidemill.jobs'::regclass::oid::bigint),
        set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
        set_config('enable_mergejoin', 'off', true), set_config('enable_bitmapscan', 'off', true),
        set_config('enable_sort', 'off', true);
    SELECT c.wall, c.boot, c.epoch INTO wall, boot, epoch FROM tidemill.read_clock(wall, boot, epoch) AS c;
    SELECT p.last_value, s.last_value, f.last_value INTO picks, seq, fence
    FROM tidemill.picks AS p, tidemill.job_seqs AS s, tidemill.fences AS f;
END
$$;
