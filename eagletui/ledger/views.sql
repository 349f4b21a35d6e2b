-- Read-only views for people's own SQL: sqlite3 'file:RUN/ledger.sqlite?mode=ro' 'SELECT * FROM v_spend'.
-- Dollars here are REAL for reading; sums that must be exact use the *_pico columns of the tables.

-- One row per sample: what was asked, what came back, why its ids are believed, what it cost.
CREATE VIEW v_samples AS
SELECT
    samples.sample_key,                                     -- stable name of the sample
    samples.dataset,
    samples.state,                                          -- queued, in_flight, answered, tokenized, failed, ...
    samples.attempts,                                       -- requests made for it
    samples.endpoint,                                       -- the provider that answered
    samples.finish_reason,
    samples.evidence,                                       -- why the ids are believed
    tokens.reason AS evidence_reason,                       -- why not a better rung
    samples.usability,                                      -- whether to train on it
    samples.prompt_tokens,                                  -- counted here
    samples.output_tokens,                                  -- counted here
    samples.billed_prompt_tokens,
    samples.billed_output_tokens,
    samples.offset_tokens,                                  -- the named constant between billed and counted
    samples.drift_tokens,                                   -- billed - counted - offset
    samples.spans,                                          -- where proved and canonical tokenization differ
    samples.cost_pico / 1e12 AS cost_usd,
    samples.latency_s,
    datetime(samples.answered_at, 'unixepoch') AS answered_at_utc,
    features.sample_id IS NOT NULL AND features.tokens_revision = tokens.revision AS extracted,
    samples.failure_kind,
    samples.failure_detail,
    prompts.preview AS prompt_preview
FROM samples
JOIN prompts ON prompts.id = samples.prompt_id
LEFT JOIN tokens ON tokens.sample_id = samples.id
LEFT JOIN features ON features.sample_id = samples.id;

-- One row: where the money stands. settled + held + unsettled + unattributed never exceeds cap.
CREATE VIEW v_spend AS
SELECT
    money.settled / 1e12 AS settled_usd,                    -- known costs
    money.held / 1e12 AS held_usd,                          -- bounds of requests in flight
    money.unsettled / 1e12 AS unsettled_usd,                -- bounds of requests that ended without a known cost
    money.unattributed / 1e12 AS unattributed_usd,          -- costs on the key that no request explains
    run.stop_at_pico / 1e12 AS stop_at_usd,                 -- admission ends once this much is spent
    run.cap_pico / 1e12 AS cap_usd,                         -- never committed beyond
    money.wasted / 1e12 AS wasted_usd,                      -- settled costs of attempts without an answer
    money.settled, money.held, money.unsettled, money.unattributed, run.stop_at_pico, run.cap_pico
FROM run, (
    SELECT
        coalesce(sum(value) FILTER (WHERE name = 'settled'), 0) AS settled,
        coalesce(sum(value) FILTER (WHERE name = 'held'), 0) AS held,
        coalesce(sum(value) FILTER (WHERE name = 'unsettled'), 0) AS unsettled,
        coalesce(sum(value) FILTER (WHERE name = 'unattributed'), 0) AS unattributed,
        coalesce(sum(value) FILTER (WHERE name = 'wasted'), 0) AS wasted
    FROM counters WHERE kind = 'money'
) AS money;

-- One row per endpoint that answered: billed against counted tokens.
CREATE VIEW v_drift AS
SELECT
    figures.endpoint,
    figures.samples,                                        -- answered through it
    figures.billed_output_tokens,
    figures.output_tokens,                                  -- counted here
    endpoints.offset_tokens,                                -- accepted constant; NULL: none
    endpoints.offset_cause,
    figures.drift_tokens,                                   -- billed - counted - offset, where known
    CASE WHEN figures.drift_billed > 0
         THEN 100.0 * figures.drift_tokens / figures.drift_billed END AS drift_percent,
    figures.cost_pico / 1e12 AS cost_usd
FROM (
    SELECT
        scope AS endpoint,
        coalesce(sum(value) FILTER (WHERE name = 'samples'), 0) AS samples,
        coalesce(sum(value) FILTER (WHERE name = 'billed_output'), 0) AS billed_output_tokens,
        coalesce(sum(value) FILTER (WHERE name = 'output'), 0) AS output_tokens,
        coalesce(sum(value) FILTER (WHERE name = 'drift'), 0) AS drift_tokens,
        coalesce(sum(value) FILTER (WHERE name = 'drift_billed'), 0) AS drift_billed,
        coalesce(sum(value) FILTER (WHERE name = 'cost'), 0) AS cost_pico
    FROM counters WHERE kind = 'endpoint' GROUP BY scope
) AS figures
LEFT JOIN endpoints ON endpoints.tag = figures.endpoint;
