-- Documents, as core.documents.Document. `record` is JSON. `document_key` is kind and id in one, and a single
-- document is found by it alone: the other indexes contain kind and id too, and a planner that believes the
-- table to be small might scan one of those.
CREATE TABLE tidemill.documents (
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
    document_key     text COLLATE "C" PRIMARY KEY GENERATED ALWAYS AS (kind || ':' || id) STORED
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX documents_created ON tidemill.documents (kind, created, id);
CREATE INDEX documents_name ON tidemill.documents (kind, name, created, id);
CREATE INDEX documents_state ON tidemill.documents (kind, state, created, id);
CREATE INDEX documents_due ON tidemill.documents (kind, due, id) WHERE due IS NOT NULL;
CREATE INDEX documents_until ON tidemill.documents (until, kind, id) WHERE until IS NOT NULL;

-- The worklist: the end or return of a job, '' for another reason, until an advance processes it. Each row
-- has its own number, so that an advance deletes only rows that it has read.
CREATE TABLE tidemill.worklist (
    number  bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind    text COLLATE "C" NOT NULL,
    document  text COLLATE "C" NOT NULL,
    job     text COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX worklist_document ON tidemill.worklist (kind, document, number);

-- Adds the flows of these ended jobs to the worklist. It takes no lock after that: see write_documents.
CREATE FUNCTION tidemill.mark_flows(ids text[]) RETURNS void LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    INSERT INTO tidemill.worklist (kind, document, job)
    SELECT 'flow', j.flow, j.id FROM unnest(ids) WITH ORDINALITY AS w (id, entry)
    CROSS JOIN LATERAL (SELECT o.id, o.flow FROM tidemill.jobs AS o WHERE o.id = w.id OFFSET 0) AS j
    WHERE (SELECT c.revision FROM tidemill.documents AS c WHERE c.document_key = 'flow:' || j.flow) IS NOT NULL
    ORDER BY w.entry;
END
$$;

-- The last writes of an engine transaction. Only schedules are deleted here, and no job marks those: a flow
-- is pruned when no job is left that could.
CREATE FUNCTION tidemill.write_documents(new_documents json, deleted_documents json, new_work json, done_work bigint[])
RETURNS void LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    IF done_work IS NOT NULL THEN
        DELETE FROM tidemill.worklist WHERE number = ANY(done_work);
    END IF;
    IF new_documents IS NOT NULL THEN
        INSERT INTO tidemill.documents (kind, id, name, state, created, revision, record, due, finished, until)
        SELECT kind, id, name, state, created, revision, record, due, finished, until
        FROM json_populate_recordset(NULL::tidemill.documents, new_documents)
        ON CONFLICT (document_key) DO UPDATE SET name = EXCLUDED.name, state = EXCLUDED.state,
            created = EXCLUDED.created, revision = EXCLUDED.revision, record = EXCLUDED.record,
            due = EXCLUDED.due, finished = EXCLUDED.finished, until = EXCLUDED.until;
    END IF;
    IF deleted_documents IS NOT NULL THEN
        DELETE FROM tidemill.documents AS c USING json_to_recordset(deleted_documents) AS w (kind text, id text)
        WHERE c.document_key = ANY(ARRAY[w.kind || ':' || w.id]);
        DELETE FROM tidemill.worklist WHERE number = ANY(ARRAY(
            SELECT s.number FROM json_to_recordset(deleted_documents) AS w (kind text, id text)
            CROSS JOIN LATERAL (
                SELECT o.number FROM tidemill.worklist AS o WHERE o.kind = w.kind AND o.document = w.id OFFSET 0
            ) AS s
        ));
    END IF;
    IF new_work IS NOT NULL THEN
        INSERT INTO tidemill.worklist (kind, document, job)
        SELECT w.kind, w.document, w.job
        FROM json_to_recordset(new_work) AS w (kind text, document text, job text)
        WHERE (
            SELECT c.revision FROM tidemill.documents AS c WHERE c.document_key = w.kind || ':' || w.document
        ) IS NOT NULL;
    END IF;
END
$$;
