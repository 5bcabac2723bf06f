-- Which fragments documents name, and by which revision: who keeps what from being deleted.
-- A document is a part's configuration, a fragment's, or an organization's default fragments. `user_revision` is '' for what
-- it is now, else the former revision of a fragment; `version` is '' where the newest one is meant. What was stored before
-- is noted by the program: SQL cannot read configurations.
DROP TABLE fragment_uses;
CREATE TABLE fragment_uses (
    user_kind TEXT NOT NULL,
    user_id TEXT NOT NULL,
    user_revision TEXT NOT NULL,
    fragment_id TEXT NOT NULL,
    version TEXT NOT NULL,
    PRIMARY KEY (user_kind, user_id, user_revision, fragment_id, version)
);
-- All of the row, or else SQLite goes through all uses of a kind and not of a fragment.
CREATE INDEX fragment_uses_by_fragment ON fragment_uses (fragment_id, user_kind, version, user_revision, user_id);

-- The same for registry items. `owner` is written as the document writes it: a namespace or an organization's id.
DROP TABLE registry_uses;
CREATE TABLE registry_uses (
    user_kind TEXT NOT NULL,
    user_id TEXT NOT NULL,
    user_revision TEXT NOT NULL,
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (user_kind, user_id, user_revision, owner, name)
);
CREATE INDEX registry_uses_by_item ON registry_uses (owner, name, user_kind, user_revision, user_id);

-- Public ones are listed for everybody.
CREATE INDEX fragments_by_visibility ON fragments (visibility);
