-- Mails that have not left yet, at most one for each invitation; gone with it. The link's secret is sealed by the key that
-- lies outside this database, and bound to the invitation's digest.
CREATE TABLE mails (
    organization_id TEXT NOT NULL,
    email TEXT NOT NULL,
    id TEXT NOT NULL UNIQUE,
    sealed TEXT NOT NULL,
    queued_at BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    due_at BIGINT NOT NULL,
    PRIMARY KEY (organization_id, email),
    FOREIGN KEY (organization_id, email) REFERENCES invites (organization_id, email) ON DELETE CASCADE
);
CREATE INDEX mails_by_due ON mails (due_at);

-- What became of links that are worth nothing any more, so that whoever opens one is told.
CREATE TABLE ended_links (
    digest TEXT PRIMARY KEY,
    why TEXT NOT NULL,
    ended_at BIGINT NOT NULL
);
CREATE INDEX ended_links_by_time ON ended_links (ended_at);

-- Who somebody is at an identity provider: kept from the first sign-in on, because addresses change hands.
CREATE TABLE identities (
    issuer TEXT NOT NULL,
    subject TEXT NOT NULL,
    user_id TEXT NOT NULL REFERENCES users (id),
    created_at BIGINT NOT NULL,
    PRIMARY KEY (issuer, subject)
);

-- Of keys that a sign-in gave; others live until they are deleted.
ALTER TABLE api_keys ADD COLUMN expires_at BIGINT;
