-- A part may name any revision of a fragment: found without reading through all the others.
CREATE INDEX fragment_revisions_by_name ON fragment_revisions (fragment_id, revision);
