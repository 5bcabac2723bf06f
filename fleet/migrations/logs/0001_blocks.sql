-- Log entries, many to a row: a block is one part's entries of one call, encoded, with what a search needs beside it.
-- A call of 100 entries is one row, one place in each index, and no work per entry inside the engine.
-- `id` rises with the time of arrival. Bodies stand last, so that summing `bytes` does not read them.

CREATE TABLE log_blocks (
    id BIGINT PRIMARY KEY,
    part_id TEXT NOT NULL,
    first_ms BIGINT NOT NULL,
    last_ms BIGINT NOT NULL,
    levels BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    body BYTEA NOT NULL
);
-- Newest first, and the sizes per part without touching the table; oldest first.
CREATE INDEX log_blocks_by_last ON log_blocks (part_id, last_ms, id, bytes);
CREATE INDEX log_blocks_by_first ON log_blocks (part_id, first_ms, id);

-- What was taken last from each source of a part: a device's spool with its batch number, or ('', digest) for callers
-- that do not number. Written in the transaction of the entries, so that a repeat is recognised for certain.
CREATE TABLE log_sources (
    part_id TEXT NOT NULL,
    source TEXT NOT NULL,
    number BIGINT NOT NULL,
    digest TEXT NOT NULL,
    seen_ms BIGINT NOT NULL,
    PRIMARY KEY (part_id, source)
);
CREATE INDEX log_sources_by_seen ON log_sources (seen_ms);
