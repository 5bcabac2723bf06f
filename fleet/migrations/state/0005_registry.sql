-- The registry: what organizations publish for machines to run, in versions, one file for each platform.
-- Files themselves lie in the artifact store, named by their digest.

CREATE TABLE registry_items (
    id TEXT PRIMARY KEY,
    organization_id TEXT NOT NULL REFERENCES organizations (id),
    name TEXT NOT NULL,
    type BIGINT NOT NULL,
    visibility BIGINT NOT NULL,
    url TEXT NOT NULL,
    description TEXT NOT NULL,
    details BYTEA NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (organization_id, name)
);
CREATE INDEX registry_items_by_visibility ON registry_items (visibility);

-- What was said about an item when a version of it was uploaded first.
CREATE TABLE registry_versions (
    item_id TEXT NOT NULL REFERENCES registry_items (id) ON DELETE CASCADE,
    version TEXT NOT NULL,
    details BYTEA NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (item_id, version)
);

CREATE TABLE registry_files (
    item_id TEXT NOT NULL,
    version TEXT NOT NULL,
    platform TEXT NOT NULL,
    platform_tags TEXT NOT NULL,
    digest TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    uploaded_at BIGINT NOT NULL,
    PRIMARY KEY (item_id, version, platform),
    FOREIGN KEY (item_id, version) REFERENCES registry_versions (item_id, version) ON DELETE CASCADE
);
CREATE INDEX registry_files_by_digest ON registry_files (digest);

-- What lies in the artifact store, or is about to: written before the bytes get their name, and removed after them.
-- `leaving` is 1 while somebody is removing them: nobody may count on bytes of that name until the row is gone.
CREATE TABLE artifacts (
    digest TEXT PRIMARY KEY,
    touched_at BIGINT NOT NULL,
    leaving BIGINT NOT NULL
);

-- Web applications that modules bring, by their name within the organization.
CREATE TABLE registry_apps (
    organization_id TEXT NOT NULL REFERENCES organizations (id),
    name TEXT NOT NULL,
    item_id TEXT NOT NULL REFERENCES registry_items (id) ON DELETE CASCADE,
    PRIMARY KEY (organization_id, name)
);
CREATE INDEX registry_apps_by_item ON registry_apps (item_id);

-- Which parts and fragments name an item. `owner` is written as they write it: a namespace or an organization's id.
CREATE TABLE registry_uses (
    user_kind TEXT NOT NULL,
    user_id TEXT NOT NULL,
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (user_kind, user_id, owner, name)
);
CREATE INDEX registry_uses_by_item ON registry_uses (owner, name);
