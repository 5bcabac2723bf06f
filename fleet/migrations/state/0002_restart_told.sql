-- When a device was told of the restart mark: the call after that one clears the mark.
ALTER TABLE parts ADD COLUMN restart_told_at BIGINT;
