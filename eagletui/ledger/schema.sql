-- One run, one file. Money is integer picodollars (1e-12 USD); times are Unix seconds; blobs are zstd.
-- The triggers (allowed moves, counters, the extraction queue) are made by triggers.py when the ledger is created.

CREATE TABLE run (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    name TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'new',
    pause_reason TEXT,                      -- only while paused
    pause_detail TEXT,                      -- one sentence: what happened and what to do
    created_at REAL NOT NULL,
    started_at REAL,
    finished_at REAL,
    config_json TEXT NOT NULL,              -- the frozen config, without secrets
    stop_at_pico INTEGER NOT NULL CHECK (stop_at_pico >= 0),
    cap_pico INTEGER NOT NULL CHECK (cap_pico >= 0),
    max_in_flight INTEGER NOT NULL CHECK (max_in_flight >= 0),
    limited_by TEXT,                        -- cap | pace | endpoint | cpu | prompts
    model_id TEXT NOT NULL,
    format TEXT NOT NULL,
    tokenizer_hash TEXT,                    -- xxh3 or sha256 of the tokenizer files, hex
    template_hash TEXT,
    key_usage_at_start_pico INTEGER,        -- what the provider's key had spent before the run; NULL: no accounts
    CHECK ((state = 'paused') = (pause_reason IS NOT NULL)),
    CHECK (state = 'paused' OR pause_detail IS NULL)
) STRICT;

CREATE TABLE sources (
    id INTEGER PRIMARY KEY,
    path TEXT NOT NULL,
    sha256 TEXT NOT NULL UNIQUE,            -- a file is added once
    samples INTEGER NOT NULL,
    added_at REAL NOT NULL
) STRICT;

CREATE TABLE prompts (                      -- one row per conversation; its samples point here
    id INTEGER PRIMARY KEY,
    prompt_key TEXT NOT NULL UNIQUE,        -- the given id, else a hash of the content
    source_id INTEGER NOT NULL REFERENCES sources(id),
    dataset TEXT NOT NULL,
    body BLOB NOT NULL,                     -- zstd JSON of core.chat.Prompt
    preview TEXT NOT NULL                   -- last user turn, cleaned, at most 200 characters
) STRICT;

CREATE TABLE samples (
    id INTEGER PRIMARY KEY,                 -- ingest order
    sample_key TEXT NOT NULL UNIQUE,        -- prompt_key, with .aN.tN appended where answer or turn is not the only one
    prompt_id INTEGER NOT NULL REFERENCES prompts(id),
    answer_index INTEGER NOT NULL DEFAULT 0,
    turn INTEGER NOT NULL DEFAULT 0,
    dataset TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'queued',
    failure_kind TEXT,                      -- on failed and refused
    failure_detail TEXT,
    attempts INTEGER NOT NULL DEFAULT 0,
    not_before REAL NOT NULL DEFAULT 0,     -- a retry waits until then; 0: never tried; 9e15: waits for the turn before
    answered_attempt_id INTEGER REFERENCES attempts(id),
    endpoint TEXT,                          -- the one that answered
    finish_reason TEXT,
    evidence TEXT,
    usability TEXT,
    usability_before TEXT,                  -- while quarantined: what a release restores
    prompt_tokens INTEGER,                  -- counted
    output_tokens INTEGER,                  -- counted: length of output_ids
    billed_prompt_tokens INTEGER,
    billed_output_tokens INTEGER,
    excess_tokens INTEGER,                  -- billed - counted; NULL where a count says nothing about the ids
    plain_excess_tokens INTEGER,            -- the same for the plain reading: what the endpoint is judged by
    has_end INTEGER NOT NULL DEFAULT 0 CHECK (has_end IN (0, 1)),  -- the model ended the answer itself
    offset_tokens INTEGER,                  -- the named, proved constant applied, and a trimmed tail; NULL: no bill
    drift_tokens INTEGER,                   -- billed - counted - offset; NULL: unknown
    spans INTEGER,                          -- spans where proved and canonical tokenization differ
    cost_pico INTEGER,                      -- of the answering attempt; NULL: not known yet
    latency_s REAL,
    answered_at REAL,
    attempts_excused INTEGER NOT NULL DEFAULT 0,  -- of these attempts: not held against max_attempts
    parked_for TEXT,                        -- while queued: JSON list of the endpoints that it waits for, all set aside
    attempts_before INTEGER NOT NULL DEFAULT 0,  -- of these attempts: made before it was last ordered again
    UNIQUE (prompt_id, answer_index, turn),
    CHECK ((state IN ('failed', 'refused')) = (failure_kind IS NOT NULL)),
    CHECK ((state IN ('answered', 'tokenized', 'quarantined')) = (answered_attempt_id IS NOT NULL))
) STRICT;
CREATE INDEX samples_due ON samples(not_before, id) WHERE state = 'queued' AND parked_for IS NULL;
CREATE INDEX samples_parked ON samples(parked_for, id) WHERE parked_for IS NOT NULL;
CREATE INDEX samples_by_state ON samples(state, id);
CREATE INDEX samples_by_dataset ON samples(dataset, id);
CREATE INDEX samples_by_evidence ON samples(evidence, id) WHERE evidence IS NOT NULL;
CREATE INDEX samples_by_usability ON samples(usability, id) WHERE usability IS NOT NULL;
CREATE INDEX samples_by_endpoint ON samples(endpoint, id) WHERE endpoint IS NOT NULL;
CREATE INDEX samples_by_finish_reason ON samples(finish_reason, id) WHERE finish_reason IS NOT NULL;
CREATE INDEX samples_by_drift ON samples(abs(drift_tokens), id) WHERE drift_tokens IS NOT NULL;
CREATE INDEX samples_by_cost ON samples(cost_pico, id) WHERE cost_pico IS NOT NULL;
CREATE INDEX samples_by_output ON samples(output_tokens, id) WHERE output_tokens IS NOT NULL;
CREATE INDEX samples_by_latency ON samples(latency_s, id) WHERE latency_s IS NOT NULL;
CREATE INDEX samples_by_answer ON samples(answered_at, latency_s) WHERE answered_at IS NOT NULL;
CREATE INDEX samples_resegmented ON samples(id) WHERE spans > 0;
CREATE INDEX samples_by_spans ON samples(spans, id) WHERE spans > 0;
CREATE INDEX samples_drifting ON samples(id) WHERE drift_tokens <> 0;

CREATE TABLE attempts (
    id INTEGER PRIMARY KEY,
    sample_id INTEGER NOT NULL REFERENCES samples(id),
    number INTEGER NOT NULL,                -- 1-based within the sample
    endpoint TEXT NOT NULL,                 -- asked for; the answering one is in the sample
    state TEXT NOT NULL DEFAULT 'held',
    hold_pico INTEGER NOT NULL CHECK (hold_pico >= 0),  -- never changed
    cost_pico INTEGER CHECK (cost_pico >= 0),
    released INTEGER NOT NULL DEFAULT 0 CHECK (released IN (0, 1)),  -- an unsettled hold covered by an adjustment
    has_answer INTEGER NOT NULL DEFAULT 0 CHECK (has_answer IN (0, 1)),  -- its reply is the sample's answer
    generation_id TEXT,
    streamed INTEGER NOT NULL CHECK (streamed IN (0, 1)),
    http_status INTEGER,
    error_kind TEXT,
    error_detail TEXT,
    billed_prompt_tokens INTEGER,
    billed_output_tokens INTEGER,
    held_at REAL NOT NULL,
    sent_at REAL,
    headers_at REAL,
    first_event_at REAL,
    ended_at REAL,
    settled_at REAL,
    CHECK ((state = 'settled') = (cost_pico IS NOT NULL)),
    CHECK (released = 0 OR state = 'unsettled'),
    UNIQUE (sample_id, number)
) STRICT;
CREATE INDEX attempts_in_flight ON attempts(endpoint, hold_pico) WHERE state IN ('held', 'sent');
CREATE INDEX attempts_unsettled ON attempts(released, id) WHERE state = 'unsettled';
CREATE INDEX attempts_by_generation ON attempts(generation_id) WHERE generation_id IS NOT NULL;

CREATE TABLE replies (                      -- kept byte for byte, never changed
    attempt_id INTEGER PRIMARY KEY REFERENCES attempts(id),
    encoding TEXT NOT NULL CHECK (encoding IN ('json', 'sse')),
    body BLOB NOT NULL,                     -- zstd of the raw body bytes
    body_bytes INTEGER NOT NULL,
    received_at REAL NOT NULL
) STRICT;

CREATE TABLE tokens (
    sample_id INTEGER PRIMARY KEY REFERENCES samples(id),
    attempt_id INTEGER NOT NULL REFERENCES attempts(id),
    revision INTEGER NOT NULL,              -- grows when a rebuild changes the ids
    prompt_ids BLOB,                        -- zstd of little-endian int32
    output_ids BLOB,                        -- the same; NULL with formats used at text level
    raw BLOB NOT NULL,                      -- zstd of the rebuilt raw text, UTF-8
    spans BLOB NOT NULL,                    -- zstd JSON list of core.tokdiff spans
    evidence TEXT NOT NULL,
    reason TEXT NOT NULL,                   -- why not a better rung, one sentence; '' on the best
    tail_trimmed INTEGER NOT NULL CHECK (tail_trimmed IN (0, 1)),
    rebuilt_at REAL NOT NULL
) STRICT;

CREATE TABLE opinions (                     -- what the target model said of an answer without proof
    sample_id INTEGER PRIMARY KEY REFERENCES samples(id),
    question TEXT NOT NULL,                 -- hash of what was asked: another one makes the opinion outdated
    model TEXT NOT NULL,                    -- xxh3_128 of the target model's files, hex
    posterior REAL NOT NULL,                -- probability of its likeliest cut among all cuts, 0 to 1
    margin REAL NOT NULL,                   -- nats by which that cut is likelier than the ids before
    changed INTEGER NOT NULL CHECK (changed IN (0, 1)),  -- the likeliest cut is not the ids before
    inferred INTEGER NOT NULL CHECK (inferred IN (0, 1)),  -- the sample was labelled by it
    tokens INTEGER NOT NULL,                -- of the ids before; the next three are about them
    own REAL NOT NULL,                      -- their log-probability under the recorded sampling, nats
    expected REAL NOT NULL,                 -- what it is on average for tokens that the model samples there
    variance REAL NOT NULL,                 -- of that sum
    structure_json TEXT NOT NULL,           -- {special token: lowest log-probability}
    asked_at REAL NOT NULL
) STRICT;

CREATE TABLE turns (                        -- answers that later turns of their conversation follow
    sample_id INTEGER PRIMARY KEY REFERENCES samples(id),
    message BLOB NOT NULL                   -- zstd JSON of core.chat.Message
) STRICT;

CREATE TABLE shards (
    id INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE,              -- relative to RUN/features
    samples INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    xxh3 TEXT NOT NULL,                     -- xxh3_128, hex
    sealed_at REAL NOT NULL,
    verified_at REAL
) STRICT;

CREATE TABLE features (
    sample_id INTEGER PRIMARY KEY REFERENCES samples(id),
    shard_id INTEGER NOT NULL REFERENCES shards(id),
    position INTEGER NOT NULL,              -- index into the shard's offsets
    rows INTEGER NOT NULL,                  -- tokens, prompt included
    tokens_revision INTEGER NOT NULL        -- stale where it differs from tokens.revision
) STRICT;
CREATE INDEX features_by_shard ON features(shard_id, position);

CREATE TABLE to_extract (                   -- kept by triggers: tokenized, trainable, without current features
    sample_id INTEGER PRIMARY KEY
) STRICT;

CREATE TABLE endpoints (                    -- figures of an endpoint are counters
    tag TEXT PRIMARY KEY,                   -- slug that pins it
    provider_name TEXT NOT NULL,
    quantization TEXT,
    state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'quarantined')),
    quarantined_since REAL,                 -- answers from then on are suspect
    profile TEXT,                           -- loss profile in use
    offset_tokens INTEGER,                  -- NULL: none accepted
    offset_cause TEXT,                      -- one of the named causes
    CHECK ((state = 'quarantined') = (quarantined_since IS NOT NULL))
) STRICT;

CREATE TABLE prices (                       -- every fetch that differed from the one before
    id INTEGER PRIMARY KEY,
    endpoint TEXT NOT NULL,
    fetched_at REAL NOT NULL,
    source TEXT NOT NULL,                   -- endpoints | config | local
    prompt_usd TEXT NOT NULL,               -- decimal strings, USD per token, as stated
    completion_usd TEXT NOT NULL,
    request_usd TEXT NOT NULL,
    max_completion_tokens INTEGER,
    raw_json TEXT NOT NULL
) STRICT;
CREATE INDEX prices_by_endpoint ON prices(endpoint, id);

CREATE TABLE adjustments (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('unattributed')),
    amount_pico INTEGER NOT NULL,           -- negative: taken back, because an attempt settled after all
    attempts INTEGER NOT NULL,              -- how many holds it released
    detail TEXT NOT NULL
) STRICT;

CREATE TABLE findings (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    endpoint TEXT NOT NULL DEFAULT '',
    sentence TEXT NOT NULL,
    affected INTEGER NOT NULL,
    examined INTEGER NOT NULL,
    example_key TEXT,
    action TEXT NOT NULL,                   -- what to do
    first_at REAL NOT NULL,
    last_at REAL NOT NULL,
    closed_at REAL,
    UNIQUE (kind, endpoint)
) STRICT;

CREATE TABLE verdicts (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    dataset TEXT NOT NULL,
    rule TEXT NOT NULL,
    accepted_by TEXT NOT NULL,
    mismatched INTEGER NOT NULL,
    samples INTEGER NOT NULL,
    detail_json TEXT NOT NULL DEFAULT '{}'  -- mismatched samples by kind, and the cost of accepting them
) STRICT;

CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    level TEXT NOT NULL CHECK (level IN ('debug', 'info', 'warn', 'error')),
    source TEXT NOT NULL,                   -- engine | extractor | provider | app | ctl
    kind TEXT NOT NULL,
    sample_key TEXT,
    message TEXT NOT NULL
) STRICT;

CREATE TABLE commands (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    verb TEXT NOT NULL,
    args_json TEXT NOT NULL,
    issued_by TEXT NOT NULL,                -- user@host:pid
    applied_at REAL,
    changed INTEGER CHECK (changed IN (0, 1)),
    result TEXT,                            -- one sentence
    progress_json TEXT,                     -- how far an order for many samples has come; it stays open until its end
    CHECK ((applied_at IS NULL) = (changed IS NULL))
) STRICT;
CREATE INDEX commands_open ON commands(id) WHERE applied_at IS NULL;

CREATE TABLE heartbeats (
    role TEXT NOT NULL,
    slot INTEGER NOT NULL DEFAULT 0,
    pid INTEGER NOT NULL,
    host TEXT NOT NULL,
    started_at REAL NOT NULL,
    ready_at REAL,
    beat_at REAL NOT NULL,
    stopped_at REAL,
    detail_json TEXT NOT NULL DEFAULT '{}',
    PRIMARY KEY (role, slot)
) STRICT;

CREATE TABLE ticks (                        -- one a second while a worker runs; the charts' source
    at INTEGER PRIMARY KEY,
    answered INTEGER NOT NULL,              -- samples that hold an answer
    output_tokens INTEGER NOT NULL,         -- counted, of those
    settled_pico INTEGER NOT NULL,
    held_pico INTEGER NOT NULL,             -- holds of attempts in flight
    in_flight INTEGER NOT NULL,             -- samples
    extracted INTEGER NOT NULL              -- samples
) STRICT;

CREATE TABLE counters (                     -- kept by triggers, so that nothing counts rows; kinds in triggers.py
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    scope TEXT NOT NULL,                    -- dataset of sample counters, endpoint of endpoint counters, else ''
    value INTEGER NOT NULL,
    PRIMARY KEY (kind, name, scope)
) STRICT, WITHOUT ROWID;

CREATE TABLE moves (                        -- core/lifecycle.py as rows; a move that is not here is refused
    machine TEXT NOT NULL CHECK (machine IN ('sample', 'attempt', 'run')),
    old_state TEXT NOT NULL,                -- '' is the state of a row that does not exist yet
    new_state TEXT NOT NULL,
    PRIMARY KEY (machine, old_state, new_state)
) STRICT, WITHOUT ROWID;
