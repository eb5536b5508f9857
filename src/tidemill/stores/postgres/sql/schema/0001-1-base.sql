-- The clock, wake-ups and arrivals.

-- One row. Boot time is wall time minus `shift`; `epoch` counts the corrections of `shift`. `skew` is 0
-- except in tests, where it simulates a server whose clock was stepped.
CREATE TABLE tidemill.clock (
    shift double precision NOT NULL,
    epoch bigint NOT NULL DEFAULT 1,
    boot_id text NOT NULL,
    skew double precision NOT NULL DEFAULT 0
);
INSERT INTO tidemill.clock (shift, boot_id)
VALUES (extract(epoch FROM clock_timestamp()) - 1000000, gen_random_uuid()::text);

-- Returns the store's clocks, read together.
--   wall: set only by tests that inject a clock; then `boot` is theirs too.
--   boot, epoch: the boot time that the caller expects, and its epoch; null if the caller has not read it yet.
-- If the boot time is far from what a caller of the same epoch expects, the server's wall clock was stepped.
-- Then `shift` is corrected, and boot time continues. A caller whose expectation lags may be a virtual
-- machine that was halted. It is ignored if a worker found this epoch's boot time as expected in the last 12
-- s. A worker that expected nothing (new, or not aware of the last correction) does not count.
CREATE FUNCTION tidemill.read_clock(
    INOUT wall double precision, INOUT boot double precision, INOUT epoch bigint
) LANGUAGE plpgsql AS $$
DECLARE
    expected_boot double precision := boot;
    known_epoch bigint := epoch;
    stored tidemill.clock%ROWTYPE;
BEGIN
    IF wall IS NOT NULL THEN
        RETURN;
    END IF;
    SELECT * INTO STRICT stored FROM tidemill.clock;
    wall := extract(epoch FROM clock_timestamp()) + stored.skew;
    boot := wall - stored.shift;
    epoch := stored.epoch;
    IF known_epoch = stored.epoch AND (
        boot < expected_boot - 2 OR boot > expected_boot + 5 AND NOT EXISTS (
            SELECT FROM tidemill.workers AS w
            WHERE w.clock_epoch = stored.epoch AND w.seen BETWEEN read_clock.wall - 12 AND read_clock.wall
        )
    ) THEN
        UPDATE tidemill.clock AS corrected
        SET shift = wall_now.wall - expected_boot, epoch = corrected.epoch + 1
        FROM (SELECT read_clock.wall AS wall) AS wall_now
        WHERE corrected.epoch = known_epoch
        RETURNING corrected.epoch INTO epoch;
        IF NOT FOUND THEN
            -- Another transaction corrected it meanwhile.
            SELECT * INTO STRICT stored FROM tidemill.clock;
            boot := wall - stored.shift;
            epoch := stored.epoch;
            RETURN;
        END IF;
        boot := expected_boot;
    END IF;
END
$$;

-- Waiting listeners. Unlogged: after a crash of the server all listeners wait on new connections. `pid` is
-- the server process of the connection that listens on the channel tidemill_<pid>. `wait_id` numbers the
-- waits of that connection.
CREATE UNLOGGED TABLE tidemill.listeners (
    topic text COLLATE "C" NOT NULL,
    pid integer NOT NULL,
    wait_id bigint NOT NULL,
    PRIMARY KEY (topic, pid, wait_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE INDEX listeners_pid ON tidemill.listeners (pid, wait_id);

-- Wakes one listener of a queue's topic, or all listeners of any other topic, and returns how many. Skips
-- listeners whose process was killed. Called after the commit: a listener registers first and then claims, so
-- one that is not found here sees the change itself. PL/pgSQL caches its plans; a function in plain SQL is
-- planned at every call. Listeners of the caller's own connection `own` that armed after `latest` are
-- skipped: they have claimed since.
CREATE FUNCTION tidemill.wake_listeners(topics text[], own integer, latest bigint) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    woken_count integer := 0;
BEGIN
    IF NOT EXISTS (SELECT FROM tidemill.listeners AS l WHERE l.topic = ANY(topics)) THEN
        RETURN 0;
    END IF;
    WITH chosen AS MATERIALIZED (
        SELECT one.topic, one.pid, one.wait_id
        FROM unnest(topics) AS wanted (topic)
        CROSS JOIN LATERAL (
            SELECT l.topic, l.pid, l.wait_id
            FROM tidemill.listeners AS l
            WHERE l.topic = wanted.topic AND (l.pid <> own OR l.wait_id <= latest)
                AND EXISTS (SELECT FROM pg_stat_get_activity(l.pid))
            LIMIT CASE WHEN wanted.topic LIKE 'queue:%' THEN 1 END
            FOR UPDATE SKIP LOCKED
        ) AS one
    ), woken AS (
        DELETE FROM tidemill.listeners AS l
        USING chosen
        WHERE l.topic = chosen.topic AND l.pid = chosen.pid AND l.wait_id = chosen.wait_id
        RETURNING l.topic, l.pid, l.wait_id
    )
    SELECT count(pg_notify('tidemill_' || woken.pid, woken.wait_id || ' ' || woken.topic)) INTO woken_count
    FROM woken;
    RETURN woken_count;
END
$$;

-- Requests written by other programs; a worker turns them into jobs. No index except the primary key, no
-- counter and no lock that two transactions share.
CREATE TABLE tidemill.arrivals (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text NOT NULL,
    task text NOT NULL,
    payload text NOT NULL,
    options text NOT NULL DEFAULT '{}',
    arrived double precision NOT NULL DEFAULT extract(epoch FROM clock_timestamp())
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Adds a job in the caller's transaction. Payload and options are JSON. Runs with the rights of its owner, so
-- that a caller needs only USAGE on the schema. A listener for arrivals is notified when the caller commits.
CREATE FUNCTION tidemill.insert_arrival(id text, task text, payload text, options text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO tidemill.arrivals (id, task, payload, options)
    VALUES (insert_arrival.id, insert_arrival.task, insert_arrival.payload, insert_arrival.options);
    PERFORM pg_notify('tidemill_' || one.pid, one.wait_id || ' ' || one.topic)
    FROM (
        SELECT l.topic, l.pid, l.wait_id
        FROM tidemill.listeners AS l
        WHERE l.topic = 'arrivals' AND EXISTS (SELECT FROM pg_stat_get_activity(l.pid))
        LIMIT 1
    ) AS one;
END
$$;

-- The same by hand: SELECT tidemill.enqueue('songs:describe', '{"songs": ["a"]}', '{"priority": 1}'). Returns
-- the id of the job. Options are those of `using` that are plain JSON: queue, priority, delay, at, expires,
-- timeout, unique, key, trace, tags.
CREATE FUNCTION tidemill.enqueue(
    task text,
    payload jsonb DEFAULT '{}',
    options jsonb DEFAULT '{}',
    id text DEFAULT lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0')
        || left(replace(gen_random_uuid()::text, '-', ''), 20)
) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tidemill.insert_arrival(enqueue.id, enqueue.task, enqueue.payload::text, enqueue.options::text);
    RETURN enqueue.id;
END
$$;
