-- The catalogue of the blob tier, version 3: blobs/catalogue.sqlite.
-- A test creates a catalogue and compares the schema that SQLite reports with this file.
PRAGMA application_id = 1398361666;
PRAGMA user_version = 3;

CREATE TABLE object (
  hash BLOB NOT NULL PRIMARY KEY CHECK (length(hash) = 32),
  size INTEGER NOT NULL CHECK (size >= 0),
  place INTEGER NOT NULL CHECK (place IN (0, 1)),
  state INTEGER NOT NULL CHECK (state IN (0, 1, 2, 3)),
  durable INTEGER NOT NULL CHECK (durable IN (0, 1)),
  created INTEGER NOT NULL,
  accessed INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX object_by_size ON object (size);
CREATE INDEX object_leaving ON object (hash) WHERE state = 3;

CREATE TABLE holder (
  hash BLOB NOT NULL CHECK (length(hash) = 32),
  member BLOB NOT NULL,
  seen INTEGER NOT NULL,
  PRIMARY KEY (hash, member)
) STRICT, WITHOUT ROWID;

CREATE TABLE chunk (
  key BLOB NOT NULL CHECK (length(key) = 16),
  hash BLOB NOT NULL CHECK (length(hash) = 32),
  offset INTEGER NOT NULL,
  length INTEGER NOT NULL,
  PRIMARY KEY (key, hash, offset)
) STRICT, WITHOUT ROWID;

CREATE INDEX chunk_of ON chunk (hash);

CREATE TABLE cut (hash BLOB NOT NULL PRIMARY KEY CHECK (length(hash) = 32)) STRICT, WITHOUT ROWID;
