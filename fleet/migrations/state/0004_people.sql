-- People: known by one e-mail address, signed in by keys of their own. What they may do is in `grants`.
CREATE TABLE users (
    id TEXT PRIMARY KEY,
    email TEXT NOT NULL UNIQUE,
    created_at BIGINT NOT NULL,
    last_login_at BIGINT
);

-- A key belongs to an organization or to a person; copied, because only one of the engines can relax a column.
CREATE TABLE api_keys_of_people_too (
    id TEXT PRIMARY KEY,
    organization_id TEXT REFERENCES organizations (id),
    user_id TEXT REFERENCES users (id),
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    generation BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    CHECK ((organization_id IS NULL) <> (user_id IS NULL))
);
INSERT INTO api_keys_of_people_too (id, organization_id, name, digest, generation, created_at)
    SELECT id, organization_id, name, digest, generation, created_at FROM api_keys;
DROP TABLE api_keys;
ALTER TABLE api_keys_of_people_too RENAME TO api_keys;
CREATE INDEX api_keys_by_organization ON api_keys (organization_id, created_at);
CREATE INDEX api_keys_by_user ON api_keys (user_id, created_at);

-- Invitations that wait. With a digest only whoever holds the link may accept, until it expires; without one, whoever
-- signs in with that address.
CREATE TABLE invites (
    organization_id TEXT NOT NULL REFERENCES organizations (id),
    email TEXT NOT NULL,
    digest TEXT UNIQUE,
    expires_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (organization_id, email)
);
CREATE INDEX invites_by_email ON invites (email);

-- The roles it brings.
CREATE TABLE invite_roles (
    organization_id TEXT NOT NULL,
    email TEXT NOT NULL,
    role TEXT NOT NULL,
    resource_type TEXT NOT NULL,
    resource_id TEXT NOT NULL,
    PRIMARY KEY (organization_id, email, resource_type, resource_id, role),
    FOREIGN KEY (organization_id, email) REFERENCES invites (organization_id, email) ON DELETE CASCADE
);
CREATE INDEX invite_roles_by_resource ON invite_roles (resource_type, resource_id);
