-- SPDX-License-Identifier: Apache-2.0
CREATE TABLE models (
  name TEXT PRIMARY KEY,
  record TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE versions (
  model TEXT NOT NULL REFERENCES models (name) ON DELETE CASCADE,
  number INTEGER NOT NULL,
  state TEXT NOT NULL,
  record TEXT NOT NULL,
  PRIMARY KEY (model, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL,
  model TEXT NOT NULL,
  version INTEGER NOT NULL,
  state TEXT NOT NULL,
  error TEXT NOT NULL DEFAULT '',
  created REAL NOT NULL,
  finished REAL
) STRICT;

CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at REAL NOT NULL,
  kind TEXT NOT NULL,
  model TEXT,
  version INTEGER,
  message TEXT NOT NULL,
  data TEXT NOT NULL
) STRICT;

CREATE INDEX events_by_model ON events (model, id);

-- Hosts that a proxy has started, so that the next proxy recognizes them if the former was killed.
CREATE TABLE hosts (
  name TEXT PRIMARY KEY,
  pid INTEGER NOT NULL,
  started_ticks INTEGER NOT NULL,
  command TEXT NOT NULL,
  restarts INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE settings (
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
