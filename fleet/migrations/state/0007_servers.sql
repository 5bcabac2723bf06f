-- What servers tell each other, in the order it was committed: what each of them has to forget of what it remembers.
CREATE TABLE news (
    id BIGINT PRIMARY KEY,
    kind TEXT NOT NULL,
    about TEXT NOT NULL,
    told_at BIGINT NOT NULL
);

-- Work that one server does for all of them: who does it, and until when nobody else begins.
CREATE TABLE duties (
    name TEXT PRIMARY KEY,
    server TEXT NOT NULL,
    until BIGINT NOT NULL
);

-- A digest of the key that the secrets in here are sealed with: a server with another one must not write here.
CREATE TABLE server_keys (
    digest TEXT PRIMARY KEY
);
