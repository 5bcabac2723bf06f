-- The identity provider at which people sign in now, at most one: whom only another one knows cannot come in.
CREATE TABLE sign_in_issuers (
    issuer TEXT PRIMARY KEY
);
CREATE INDEX identities_by_user ON identities (user_id);
CREATE INDEX api_keys_by_end ON api_keys (expires_at);

-- Which form of the page accepted: its button may be pressed twice.
ALTER TABLE ended_links ADD COLUMN form TEXT;
