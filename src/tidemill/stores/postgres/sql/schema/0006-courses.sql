-- Flows and schedules, as core.courses.Course. `record` is JSON. `named` is kind and id in one, and one that is
-- named is looked up by it alone: the other indexes have kind and id in them, too, and a server that takes the
-- table for small would as soon read one of those whole.
CREATE TABLE tidemill.courses (
    kind      text COLLATE "C" NOT NULL,
    id        text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    state     text COLLATE "C" NOT NULL,
    created   double precision NOT NULL,
    revision  bigint           NOT NULL,
    record    text             NOT NULL,
    due       double precision,
    finished  double precision,
    until     double precision,
    named     text COLLATE "C" PRIMARY KEY GENERATED ALWAYS AS (kind || ':' || id) STORED
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX courses_created ON tidemill.courses (kind, created, id);
CREATE INDEX courses_name ON tidemill.courses (kind, name, created, id);
CREATE INDEX courses_state ON tidemill.courses (kind, state, created, id);
CREATE INDEX courses_due ON tidemill.courses (kind, due, id) WHERE due IS NOT NULL;
CREATE INDEX courses_until ON tidemill.courses (until, kind, id) WHERE until IS NOT NULL;

-- What has stirred courses, until an advance took it: the end of a job, or its return; '' for another reason.
-- Each has a number of its own, or who looked before would take what came since.
CREATE TABLE tidemill.stirs (
    number  bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind    text COLLATE "C" NOT NULL,
    course  text COLLATE "C" NOT NULL,
    job     text COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX stirs_course ON tidemill.stirs (kind, course, number);

-- The hot path has ended these jobs of flows. It waits for nobody once it has written here: see write_courses.
CREATE FUNCTION tidemill.stir_flows(ids text[]) RETURNS void LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    INSERT INTO tidemill.stirs (kind, course, job)
    SELECT 'flow', j.flow, j.id FROM unnest(ids) WITH ORDINALITY AS w (id, place)
    CROSS JOIN LATERAL (SELECT o.id, o.flow FROM tidemill.jobs AS o WHERE o.id = w.id OFFSET 0) AS j
    WHERE (SELECT c.revision FROM tidemill.courses AS c WHERE c.named = 'flow:' || j.flow) IS NOT NULL
    ORDER BY w.place;
END
$$;

-- The last that a slow step writes. A course that goes by this is a schedule, which nobody stirs: a flow is pruned
-- when no job of it is left that could.
CREATE FUNCTION tidemill.write_courses(new_courses json, gone_courses json, new_stirs json, taken bigint[])
RETURNS void LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    IF taken IS NOT NULL THEN
        DELETE FROM tidemill.stirs WHERE number = ANY(taken);
    END IF;
    IF new_courses IS NOT NULL THEN
        INSERT INTO tidemill.courses (kind, id, name, state, created, revision, record, due, finished, until)
        SELECT kind, id, name, state, created, revision, record, due, finished, until
        FROM json_populate_recordset(NULL::tidemill.courses, new_courses)
        ON CONFLICT (named) DO UPDATE SET name = EXCLUDED.name, state = EXCLUDED.state,
            created = EXCLUDED.created, revision = EXCLUDED.revision, record = EXCLUDED.record,
            due = EXCLUDED.due, finished = EXCLUDED.finished, until = EXCLUDED.until;
    END IF;
    IF gone_courses IS NOT NULL THEN
        DELETE FROM tidemill.courses AS c USING json_to_recordset(gone_courses) AS w (kind text, id text)
        WHERE c.named = ANY(ARRAY[w.kind || ':' || w.id]);
        DELETE FROM tidemill.stirs WHERE number = ANY(ARRAY(
            SELECT s.number FROM json_to_recordset(gone_courses) AS w (kind text, id text)
            CROSS JOIN LATERAL (
                SELECT o.number FROM tidemill.stirs AS o WHERE o.kind = w.kind AND o.course = w.id OFFSET 0
            ) AS s
        ));
    END IF;
    IF new_stirs IS NOT NULL THEN
        INSERT INTO tidemill.stirs (kind, course, job)
        SELECT w.kind, w.course, w.job
        FROM json_to_recordset(new_stirs) AS w (kind text, course text, job text)
        WHERE (
            SELECT c.revision FROM tidemill.courses AS c WHERE c.named = w.kind || ':' || w.course
        ) IS NOT NULL;
    END IF;
END
$$;
