-- What the store itself needs, before there is any job.

-- One row. `shift` is what to take from the wall clock for the boot clock; `epoch` counts how often it was
-- corrected. `skew` is 0 but in tests, where it stands for a server whose clock was stepped.
CREATE TABLE tidemill.clock (
    shift double precision NOT NULL,
    epoch bigint NOT NULL DEFAULT 1,
    boot_id text NOT NULL,
    skew double precision NOT NULL DEFAULT 0
);
INSERT INTO tidemill.clock (shift, boot_id)
VALUES (extract(epoch FROM clock_timestamp()) - 1000000, gen_random_uuid()::text);

-- The store's clocks, read together.
--   wall: given only by tests that bring their own clock; then `boot` is theirs too.
--   boot, epoch: what the caller expects the boot clock to say, and of which epoch; null when it has not
--     heard it yet.
-- A boot clock far from what a caller of the same epoch expects means that the server's wall clock was
-- stepped: `shift` is corrected, and the boot clock goes on. A caller who lags may be a virtual machine that was
-- halted: it is not believed when a worker found this epoch's boot clock where it expected it in the last 12 s.
-- One that expected nothing, because it had just come, or had not heard of the last correction, says nothing.
CREATE FUNCTION tidemill.read_clock(
    INOUT wall double precision, INOUT boot double precision, INOUT epoch bigint
) LANGUAGE plpgsql AS $$
DECLARE
    expected double precision := boot;
    heard bigint := epoch;
    stored tidemill.clock%ROWTYPE;
BEGIN
    IF wall IS NOT NULL THEN
        RETURN;
    END IF;
    SELECT * INTO STRICT stored FROM tidemill.clock;
    wall := extract(epoch FROM clock_timestamp()) + stored.skew;
    boot := wall - stored.shift;
    epoch := stored.epoch;
    IF heard = stored.epoch AND (
        boot < expected - 2 OR boot > expected + 5 AND NOT EXISTS (
            SELECT FROM tidemill.workers AS w
            WHERE w.agreed = stored.epoch AND w.seen BETWEEN read_clock.wall - 12 AND read_clock.wall
        )
    ) THEN
        UPDATE tidemill.clock AS corrected
        SET shift = wall_now.wall - expected, epoch = corrected.epoch + 1
        FROM (SELECT read_clock.wall AS wall) AS wall_now
        WHERE corrected.epoch = heard
        RETURNING corrected.epoch INTO epoch;
        IF NOT FOUND THEN
            -- Somebody else corrected it meanwhile.
            SELECT * INTO STRICT stored FROM tidemill.clock;
            boot := wall - stored.shift;
            epoch := stored.epoch;
            RETURN;
        END IF;
        boot := expected;
    END IF;
END
$$;

-- Listeners that wait. Unlogged: whoever waited before a crash of the server waits on a new connection.
-- `pid` is the server process of the connection that listens on the channel tidemill_<pid>; `arming` is its
-- own number for one wait of one listener.
CREATE UNLOGGED TABLE tidemill.parked (
    topic text COLLATE "C" NOT NULL,
    pid integer NOT NULL,
    arming bigint NOT NULL,
    PRIMARY KEY (topic, pid, arming)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE INDEX parked_by_pid ON tidemill.parked (pid, arming);

-- Wake one listener of a queue's topic, every one of any other's. A ring is not spent on a process that was
-- killed while it waited.
-- Called after the commit of what there is to see: a listener parks first and then looks, so one that this
-- does not find will see it.
-- Answers how many were woken. PL/pgSQL keeps its plans; a function in plain SQL is planned at every call.
-- The ringer's own listeners (of the connection `own`) that armed after the `latest` one it knew of are left
-- alone: they have looked since.
CREATE FUNCTION tidemill.ring(topics text[], own integer, latest bigint) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    rung integer := 0;
BEGIN
    IF NOT EXISTS (SELECT FROM tidemill.parked AS p WHERE p.topic = ANY(topics)) THEN
        RETURN 0;
    END IF;
    WITH chosen AS MATERIALIZED (
        SELECT one.topic, one.pid, one.arming
        FROM unnest(topics) AS wanted (topic)
        CROSS JOIN LATERAL (
            SELECT p.topic, p.pid, p.arming
            FROM tidemill.parked AS p
            WHERE p.topic = wanted.topic AND (p.pid <> own OR p.arming <= latest)
                AND EXISTS (SELECT FROM pg_stat_get_activity(p.pid))
            LIMIT CASE WHEN wanted.topic LIKE 'queue:%' THEN 1 END
            FOR UPDATE SKIP LOCKED
        ) AS one
    ), woken AS (
        DELETE FROM tidemill.parked AS p
        USING chosen
        WHERE p.topic = chosen.topic AND p.pid = chosen.pid AND p.arming = chosen.arming
        RETURNING p.topic, p.pid, p.arming
    )
    SELECT count(pg_notify('tidemill_' || woken.pid, woken.arming || ' ' || woken.topic)) INTO rung
    FROM woken;
    RETURN rung;
END
$$;

-- Requests written by anyone who may; a worker turns them into jobs. No index but that of their order, no
-- counter and no lock that two transactions share.
CREATE TABLE tidemill.arrivals (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text NOT NULL,
    task text NOT NULL,
    payload text NOT NULL,
    options text NOT NULL DEFAULT '{}',
    arrived double precision NOT NULL DEFAULT extract(epoch FROM clock_timestamp())
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- A job in the caller's own transaction, as Tidemill's clients write it: payload and options are JSON.
-- It runs with the rights of its owner, so that a caller needs USAGE of the schema and nothing more. Whoever
-- waits for arrivals is notified when the caller commits.
CREATE FUNCTION tidemill.arrive(id text, task text, payload text, options text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO tidemill.arrivals (id, task, payload, options)
    VALUES (arrive.id, arrive.task, arrive.payload, arrive.options);
    PERFORM pg_notify('tidemill_' || one.pid, one.arming || ' ' || one.topic)
    FROM (
        SELECT p.topic, p.pid, p.arming
        FROM tidemill.parked AS p
        WHERE p.topic = 'arrivals' AND EXISTS (SELECT FROM pg_stat_get_activity(p.pid))
        LIMIT 1
    ) AS one;
END
$$;

-- The same by hand: SELECT tidemill.enqueue('songs:describe', '{"songs": ["a"]}', '{"priority": 1}').
-- Answers the job's id. The options are those of `using` that are plain JSON: queue, priority, delay, at,
-- expires, timeout, unique, key, trace, tags.
CREATE FUNCTION tidemill.enqueue(
    task text,
    payload jsonb DEFAULT '{}',
    options jsonb DEFAULT '{}',
    id text DEFAULT lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0')
        || left(replace(gen_random_uuid()::text, '-', ''), 20)
) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tidemill.arrive(enqueue.id, enqueue.task, enqueue.payload::text, enqueue.options::text);
    RETURN enqueue.id;
END
$$;
