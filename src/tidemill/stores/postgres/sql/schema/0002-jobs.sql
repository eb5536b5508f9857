-- The jobs, and everything that is kept with them.

-- Places in line, fences, how many picks there were, and how often jobs were put before a floor: given without
-- waiting for anybody's commit.
CREATE SEQUENCE tidemill.places MINVALUE 0;
CREATE SEQUENCE tidemill.fences MINVALUE 0;
CREATE SEQUENCE tidemill.picks MINVALUE 0;
CREATE SEQUENCE tidemill.lowerings MINVALUE 0;
SELECT setval('tidemill.places', 0), setval('tidemill.fences', 0), setval('tidemill.picks', 0),
    setval('tidemill.lowerings', 0);

-- One row per job, in every state. Partial indexes keep each question about the jobs it concerns: pruning
-- never sees jobs that are yet to run. No index holds what a heartbeat changes. Those of all jobs have room for a
-- second entry of each: its settlement writes a new row, and pages would have to be split for it.
-- `folded` says whether the job was in a folded claim when it was last settled. `flow` is the id of the flow it is
-- part of. `error`, `tags`, `needs`, `batching`, `extra` and `in_flow` are JSON.
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
    extra         text,
    folded        boolean          NOT NULL DEFAULT false,
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
-- Apart from those of flows: these are not their queue's to prune.
CREATE INDEX jobs_ended ON tidemill.jobs (queue, state, (flow IS NULL), finished, seq) WHERE finished IS NOT NULL;
CREATE INDEX jobs_parts ON tidemill.jobs (flow, seq) WHERE flow IS NOT NULL;
CREATE INDEX jobs_expiring ON tidemill.jobs (queue, expires)
    WHERE expires IS NOT NULL AND state IN ('scheduled', 'ready', 'waiting');
CREATE INDEX jobs_unique ON tidemill.jobs (queue, unique_key)
    WHERE unique_key IS NOT NULL
    AND (unique_holds OR state IN ('scheduled', 'ready', 'waiting', 'running'));

-- The line: the jobs that may start, in their order, each with what a claim has to know before it takes one.
-- Whoever changes a ready job has its row here. `fence` is the one its last claim had.
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

-- Claims of plain jobs that are folded: one row for all jobs that were claimed together, instead of a change to
-- the row of each. `open` is how many of them are still in it; 0003-folded.sql says how they leave it.
CREATE TABLE tidemill.claims (
    fence    bigint           PRIMARY KEY,
    claim    bigint           NOT NULL,
    worker   text COLLATE "C" NOT NULL,
    number   bigint           NOT NULL,
    lease    double precision NOT NULL,
    started  double precision NOT NULL,
    open     integer          NOT NULL,
    jobs     text[]           NOT NULL
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 2000
);
ALTER TABLE tidemill.claims ALTER jobs SET STORAGE EXTERNAL; -- to compress it takes longer than to write it

-- What is set on queues, and what follows from it: whether plain jobs are taken in (`inserts`) and given out
-- (`gives`) without looking at limits, and whether the end of a run may let another job start (`rings`).
CREATE TABLE tidemill.queues (
    name      text COLLATE "C" PRIMARY KEY,
    declared  text    NOT NULL,
    override  text,
    pause     text,
    inserts   boolean NOT NULL,
    gives     boolean NOT NULL,
    rings     boolean NOT NULL
);

-- How far the line of plain jobs of a queue was taken: no job of this priority stands at this place or before it.
-- `since` is when, by the boot clock, the line was last looked through from its beginning, `shift` what was to take
-- from the wall clock for the boot clock then, and `lowerings` how many there had been; 0004-plain.sql has more.
CREATE TYPE tidemill.floor AS (
    priority integer, due double precision, seq bigint,
    since double precision, shift double precision, lowerings bigint
);

-- The lanes that have something ready, with the priority and the place of their heads. The lane '' is here
-- for good and without a head: plain jobs come and go without touching it. `vacant` is a hint that it was
-- left without a job: then the next one counts as the birth of the lane. `grp` are the pools its jobs share
-- with other lanes, '' for none. A lane with `again` is shut, as core.ledger.Shut; its `key` is '' for none. Only
-- the lane '' has a floor.
CREATE TABLE tidemill.lanes (
    queue     text COLLATE "C" NOT NULL,
    lane      text COLLATE "C" NOT NULL,
    grp       text COLLATE "C" NOT NULL,
    priority  integer,
    seq       bigint,
    served    bigint           NOT NULL,
    vacant    boolean          NOT NULL DEFAULT false,
    pool      text COLLATE "C",
    key       text COLLATE "C",
    until     double precision,
    again     double precision,
    urgency   integer,
    lacks     integer          NOT NULL DEFAULT 0,
    ripe      double precision,
    floor     tidemill.floor,
    PRIMARY KEY (queue, lane)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX lanes_open ON tidemill.lanes (queue, grp, priority, served, seq)
    WHERE again IS NULL AND lane <> '';
CREATE INDEX lanes_shut ON tidemill.lanes (queue, again, lane) WHERE again IS NOT NULL;
CREATE INDEX lanes_waiting ON tidemill.lanes (pool, key, queue) WHERE again IS NOT NULL;

-- Groups of lanes: how many of them there are (the lane '' is not counted), and the mark on those that one of
-- their pools refused, however many lanes it has. `key` is '' for none.
CREATE TABLE tidemill.groups (
    queue    text COLLATE "C"  NOT NULL,
    grp      text COLLATE "C"  NOT NULL,
    lanes    bigint            NOT NULL DEFAULT 0,
    pool     text COLLATE "C",
    key      text COLLATE "C",
    until    double precision,
    again    double precision,
    urgency  integer,
    PRIMARY KEY (queue, grp)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX groups_waiting ON tidemill.groups (pool, key) WHERE again IS NOT NULL;

-- What providers meter: declared by code, overridden by people.
CREATE TABLE tidemill.pools (
    name      text COLLATE "C" PRIMARY KEY,
    declared  text NOT NULL,
    override  text
);

-- All that is known of a pool, or of one key of it ('' for none), as core.accounts.Account. `looked` is the
-- wall time it was last written, or found to be worth keeping.
CREATE TABLE tidemill.accounts (
    pool     text COLLATE "C"  NOT NULL,
    key      text COLLATE "C"  NOT NULL,
    looked   double precision  NOT NULL,
    account  text              NOT NULL,
    PRIMARY KEY (pool, key)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX accounts_looked ON tidemill.accounts (looked) WHERE key <> '';

-- Units that a claim holds, as core.ledger.Reserved.
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

-- Claims that were taken from their holders by hand: their units are the holders' to settle, until the
-- lease is over.
CREATE TABLE tidemill.left_units (
    job     text COLLATE "C"  NOT NULL,
    fence   bigint            NOT NULL,
    claim   bigint            NOT NULL,
    worker  text COLLATE "C"  NOT NULL,
    lease   double precision  NOT NULL,
    PRIMARY KEY (job, fence, claim)
);

-- Claims whose units were counted anew because their holder fell silent. If it speaks after all it is
-- heard, once.
CREATE TABLE tidemill.unheard (
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
    agreed       bigint, -- the clock's epoch in which it found the boot clock where it expected it
    host         text             NOT NULL DEFAULT '',
    pid          bigint           NOT NULL DEFAULT 0,
    queues       text             NOT NULL DEFAULT '[]',
    concurrency  integer          NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE tidemill.leaders (
    duty    text COLLATE "C" PRIMARY KEY,
    worker  text COLLATE "C" NOT NULL,
    lease   double precision NOT NULL
) WITH (fillfactor = 50);

-- Ids of jobs that are gone, and of requests that made none, with what they were told. They are forgotten
-- when both clocks say so: a stepped wall clock ends nothing early. After another boot only the wall can.
CREATE TABLE tidemill.remembered (
    id       text COLLATE "C" PRIMARY KEY,
    verdict  text             NOT NULL,
    job      text             NOT NULL,
    fence    bigint           NOT NULL,
    claim    bigint           NOT NULL,
    wall     double precision NOT NULL,
    boot     double precision NOT NULL,
    boot_id  text             NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
CREATE INDEX remembered_wall ON tidemill.remembered (wall);

-- What queues did, minute by minute: appended to by every step, so that nobody waits for a counter, and
-- added up by whoever reads; pruning folds the rows of a minute into one.
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

-- How many jobs there are: what statements about jobs have changed, appended by a trigger, so that nobody waits for
-- a counter, and added up by whoever reads. Now and then the rows are folded into one of each queue and state.
-- `retrying` are scheduled jobs that have run before, `scheduled` the others. A job in a folded claim counts as ready,
-- as its row says. `parts` are those of flows that have ended, which no queue's retention drops.
CREATE TABLE tidemill.counts (
    queue  text COLLATE "C"  NOT NULL,
    state  text COLLATE "C"  NOT NULL,
    jobs   bigint            NOT NULL,
    parts  bigint            NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE FUNCTION tidemill.count_jobs() RETURNS trigger LANGUAGE plpgsql SET jit = off AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO tidemill.counts (queue, state, jobs, parts)
        SELECT j.queue, CASE WHEN j.state = 'scheduled' AND j.attempts > 0 THEN 'retrying' ELSE j.state END, count(*),
            count(*) FILTER (WHERE j.flow IS NOT NULL AND j.finished IS NOT NULL)
        FROM came AS j GROUP BY 1, 2;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO tidemill.counts (queue, state, jobs, parts)
        SELECT j.queue, CASE WHEN j.state = 'scheduled' AND j.attempts > 0 THEN 'retrying' ELSE j.state END, -count(*),
            -count(*) FILTER (WHERE j.flow IS NOT NULL AND j.finished IS NOT NULL)
        FROM went AS j GROUP BY 1, 2;
    ELSE
        INSERT INTO tidemill.counts (queue, state, jobs, parts)
        SELECT j.queue, CASE WHEN j.state = 'scheduled' AND j.attempts > 0 THEN 'retrying' ELSE j.state END, sum(j.jobs),
            COALESCE(sum(j.jobs) FILTER (WHERE j.flow IS NOT NULL AND j.finished IS NOT NULL), 0)
        FROM (
            SELECT queue, state, attempts, flow, finished, 1 AS jobs FROM came
            UNION ALL SELECT queue, state, attempts, flow, finished, -1 FROM went
        ) AS j
        GROUP BY 1, 2 HAVING sum(j.jobs) <> 0;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER count_inserted AFTER INSERT ON tidemill.jobs
    REFERENCING NEW TABLE AS came FOR EACH STATEMENT EXECUTE FUNCTION tidemill.count_jobs();
CREATE TRIGGER count_updated AFTER UPDATE ON tidemill.jobs
    REFERENCING OLD TABLE AS went NEW TABLE AS came FOR EACH STATEMENT EXECUTE FUNCTION tidemill.count_jobs();
CREATE TRIGGER count_deleted AFTER DELETE ON tidemill.jobs
    REFERENCING OLD TABLE AS went FOR EACH STATEMENT EXECUTE FUNCTION tidemill.count_jobs();

-- Minutes of pools, keys added up. `units` and `refusals` are JSON objects.
CREATE TABLE tidemill.pool_history (
    pool      text COLLATE "C"  NOT NULL,
    minute    double precision  NOT NULL,
    calls     bigint            NOT NULL,
    units     text              NOT NULL,
    refusals  text              NOT NULL,
    PRIMARY KEY (pool, minute)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Details of jobs. Whoever drops a job drops them: a foreign key would ask for each of them three times.
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

-- What paid steps have begun and what steps brought home, as core.checkpoints.Checkpoint. `number` is the
-- order in which they were first begun; `fence`, `claim` and `try` say who marked it last.
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

-- The boot of the clock that steps went by last. Only a test's own clock ever has another.
CREATE TABLE tidemill.boots (boot_id text NOT NULL);

-- A slow step begins: one at a time. What it looks up stays as it is but for plain jobs, which the hot path may
-- move meanwhile, and which it therefore locks. Answers the clocks and the numbers that were given last.
CREATE FUNCTION tidemill.begin_step(
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
    FROM tidemill.picks AS p, tidemill.places AS s, tidemill.fences AS f;
END
$$;
