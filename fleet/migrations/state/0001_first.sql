-- Organizations down to parts, who may touch them, and what was done to them.
-- TEXT and BIGINT only (times in milliseconds, flags 0 or 1, sealed secrets as text): both engines read it alike.

CREATE TABLE organizations (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    public_namespace TEXT UNIQUE,
    region TEXT NOT NULL,
    cid TEXT,
    default_fragments TEXT,
    metadata TEXT,
    created_at BIGINT NOT NULL
);

CREATE TABLE locations (
    id TEXT PRIMARY KEY,
    organization_id TEXT NOT NULL REFERENCES organizations (id),
    parent_id TEXT REFERENCES locations (id),
    name TEXT NOT NULL,
    region TEXT NOT NULL,
    metadata TEXT,
    created_at BIGINT NOT NULL
);
CREATE INDEX locations_by_organization ON locations (organization_id, created_at);
CREATE INDEX locations_by_parent ON locations (parent_id);

-- Access of a second organization; the first one stays the owner.
CREATE TABLE location_shares (
    location_id TEXT NOT NULL REFERENCES locations (id) ON DELETE CASCADE,
    organization_id TEXT NOT NULL REFERENCES organizations (id),
    created_at BIGINT NOT NULL,
    PRIMARY KEY (location_id, organization_id)
);
CREATE INDEX location_shares_by_organization ON location_shares (organization_id);

CREATE TABLE location_secrets (
    id TEXT PRIMARY KEY,
    location_id TEXT NOT NULL REFERENCES locations (id) ON DELETE CASCADE,
    digest TEXT NOT NULL,
    sealed TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX location_secrets_by_location ON location_secrets (location_id);

CREATE TABLE machines (
    id TEXT PRIMARY KEY,
    location_id TEXT NOT NULL REFERENCES locations (id),
    name TEXT NOT NULL,
    metadata TEXT,
    created_at BIGINT NOT NULL,
    UNIQUE (location_id, name)
);

CREATE TABLE parts (
    id TEXT PRIMARY KEY,
    machine_id TEXT NOT NULL REFERENCES machines (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    dns_name TEXT NOT NULL,
    main BIGINT NOT NULL,
    config TEXT NOT NULL,
    updated_at BIGINT NOT NULL,
    restart_marked_at BIGINT,
    metadata TEXT,
    created_at BIGINT NOT NULL,
    UNIQUE (machine_id, name)
);
CREATE INDEX parts_by_dns_name ON parts (dns_name);

CREATE TABLE part_secrets (
    id TEXT PRIMARY KEY,
    part_id TEXT NOT NULL REFERENCES parts (id) ON DELETE CASCADE,
    digest TEXT NOT NULL,
    sealed TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX part_secrets_by_part ON part_secrets (part_id);

-- What a part was before each change.
CREATE TABLE part_history (
    part_id TEXT NOT NULL REFERENCES parts (id) ON DELETE CASCADE,
    changed_at BIGINT NOT NULL,
    old_name TEXT NOT NULL,
    old_config TEXT NOT NULL,
    old_updated_at BIGINT NOT NULL,
    edited_by_type BIGINT NOT NULL,
    edited_by TEXT NOT NULL,
    PRIMARY KEY (part_id, changed_at)
);

-- Kept apart from the part: written in batches, many parts per commit, never one commit per check-in.
CREATE TABLE part_presence (
    part_id TEXT PRIMARY KEY REFERENCES parts (id) ON DELETE CASCADE,
    last_access BIGINT NOT NULL
);

-- What a device last told about itself: a DeviceStatus message as hex digits.
CREATE TABLE part_status (
    part_id TEXT PRIMARY KEY REFERENCES parts (id) ON DELETE CASCADE,
    status TEXT NOT NULL,
    reported_at BIGINT NOT NULL
);

-- A version that an operator wants the device to try again.
CREATE TABLE part_update_retries (
    part_id TEXT NOT NULL REFERENCES parts (id) ON DELETE CASCADE,
    product BIGINT NOT NULL,
    asked_at BIGINT NOT NULL,
    PRIMARY KEY (part_id, product)
);

CREATE TABLE fragments (
    id TEXT PRIMARY KEY,
    organization_id TEXT NOT NULL REFERENCES organizations (id),
    name TEXT NOT NULL,
    visibility BIGINT NOT NULL,
    config TEXT NOT NULL,
    revision TEXT NOT NULL,
    updated_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (organization_id, name)
);

-- Every revision a fragment ever had, the present one included: a part may name any of them.
CREATE TABLE fragment_revisions (
    fragment_id TEXT NOT NULL REFERENCES fragments (id) ON DELETE CASCADE,
    revision TEXT NOT NULL,
    name TEXT NOT NULL,
    visibility BIGINT NOT NULL,
    config TEXT NOT NULL,
    made_at BIGINT NOT NULL,
    edited_by_type BIGINT NOT NULL,
    edited_by TEXT NOT NULL,
    PRIMARY KEY (fragment_id, made_at)
);

-- Which parts and fragments name a fragment: who must hear of its change, and who keeps it from being deleted.
CREATE TABLE fragment_uses (
    user_kind TEXT NOT NULL,
    user_id TEXT NOT NULL,
    fragment_id TEXT NOT NULL,
    PRIMARY KEY (user_kind, user_id, fragment_id)
);
CREATE INDEX fragment_uses_by_fragment ON fragment_uses (fragment_id);

-- The secret itself is kept nowhere; `generation` rises when it is rotated, which ends every token made before.
CREATE TABLE api_keys (
    id TEXT PRIMARY KEY,
    organization_id TEXT NOT NULL REFERENCES organizations (id),
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    generation BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX api_keys_by_organization ON api_keys (organization_id, created_at);

CREATE TABLE grants (
    identity_type TEXT NOT NULL,
    identity_id TEXT NOT NULL,
    organization_id TEXT NOT NULL REFERENCES organizations (id),
    role TEXT NOT NULL,
    resource_type TEXT NOT NULL,
    resource_id TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (identity_id, resource_type, resource_id, role)
);
CREATE INDEX grants_by_resource ON grants (resource_type, resource_id);
CREATE INDEX grants_by_organization ON grants (organization_id);

-- Written in the transaction of the change it describes; never changed.
CREATE TABLE audit (
    organization_id TEXT NOT NULL,
    happened_at BIGINT NOT NULL,
    id TEXT NOT NULL,
    actor TEXT NOT NULL,
    from_address TEXT NOT NULL,
    operation TEXT NOT NULL,
    resource_type TEXT NOT NULL,
    resource_id TEXT NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (organization_id, happened_at, id)
);
