"""The tables of the database, as a broker of this version has them. Migrations only add: an older broker goes on with what is
there, and a newer one finds what it knows."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO meta VALUES ('schema', '1'), ('generation', '0');
CREATE TABLE IF NOT EXISTS conversations (
  id TEXT PRIMARY KEY, max_hops INTEGER NOT NULL, hops INTEGER NOT NULL, created REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS deliveries (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  state TEXT NOT NULL,
  agent TEXT NOT NULL,
  session TEXT NOT NULL,
  conversation TEXT NOT NULL,
  parent TEXT,
  request_key TEXT UNIQUE,
  created REAL NOT NULL,
  record TEXT NOT NULL,
  UNIQUE (parent, kind)
);
CREATE INDEX IF NOT EXISTS deliveries_to ON deliveries (agent, session);
CREATE INDEX IF NOT EXISTS deliveries_open ON deliveries (state) WHERE state IN ('queued', 'delivering', 'awaiting-peer');
CREATE INDEX IF NOT EXISTS deliveries_between ON deliveries (
  agent, session, json_extract(record, '$.sender_agent'), json_extract(record, '$.sender_session'), created
) WHERE kind = 'request';
CREATE TABLE IF NOT EXISTS calls (
  delivery TEXT PRIMARY KEY, key TEXT NOT NULL UNIQUE, fingerprint TEXT NOT NULL, cancelled REAL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS calls_cancelled ON calls (fingerprint, cancelled) WHERE cancelled IS NOT NULL;
CREATE TABLE IF NOT EXISTS bodies (delivery TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS attempts (
  id TEXT PRIMARY KEY, delivery TEXT NOT NULL, open INTEGER NOT NULL, evidence TEXT NOT NULL, record TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS attempts_of ON attempts (delivery);
CREATE TABLE IF NOT EXISTS pins (
  agent TEXT NOT NULL, place BLOB NOT NULL, session TEXT NOT NULL, by_caller INTEGER NOT NULL, created REAL NOT NULL,
  PRIMARY KEY (agent, place)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS late_watches (request TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS store_pins (
  agent TEXT NOT NULL, place BLOB NOT NULL, store BLOB NOT NULL,
  session TEXT NOT NULL, by_caller INTEGER NOT NULL, created REAL NOT NULL,
  PRIMARY KEY (agent, place, store)
) WITHOUT ROWID;
"""
